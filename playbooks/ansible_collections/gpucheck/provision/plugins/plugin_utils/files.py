"""Files that the controller writes: atomically."""

import fcntl
import os
import secrets
import time
from contextlib import contextmanager, suppress
from functools import cache

# Nothing is written for so long: an older one belongs to a run that was killed.
UNFINISHED_S = 3600


def write(path, text, mode=None):
    """Write a file atomically, with the directories that it lacks. mode: by the umask if omitted. Raises OSError.

    Two runs may write the same file at once: each has an unfinished file of its own, and the later one stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(path.parent)
    unfinished = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        # Never readable for more users than the complete file.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode or 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


@cache
def remove_unfinished(folder):
    """Remove what killed runs left there, once a process: a fleet's folder has many files."""
    for path in folder.glob(".*.partial"):
        # Another run may be as quick.
        with suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > UNFINISHED_S:
                path.unlink()


@contextmanager
def locked(folder):
    """Have other runs wait while something is made in this folder. A killed run blocks none. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
