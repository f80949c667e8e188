"""Files that the controller writes: atomically, and only inside the directory if a host chose the name."""

import fcntl
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from functools import cache

# What package managers name their files with; no separator, no control character, no option of a program.
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,254}\Z")
# A folder of a host, in a transfer: nothing that a shell or the batch input of sftp takes for anything but a name.
REMOTE = re.compile(r"(/[A-Za-z0-9_.-]+)+\Z")
DEEPEST, LONGEST = 8, 1024
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


class Outside(ValueError):
    """A name that leads out of the directory, or could; the message has the reason."""


def remote(folder):
    """The path of a folder on a host, if every program that transfers files reads the same name. Raises Outside."""
    if not isinstance(folder, str) or not REMOTE.match(folder) or ".." in folder.split("/") or len(folder) > LONGEST:
        raise Outside("{!a:.200} is not a plain absolute path of a host".format(folder))
    return folder


def plain(name):
    """A file name without folders, as package managers name files. Raises Outside."""
    if not isinstance(name, str) or not PART.match(name):
        raise Outside("{!a:.200} is not a plain file name".format(name))
    return name


def inside(folder, name):
    """The path of a relative name below a directory that exists. Raises Outside."""
    parts = name.split("/") if isinstance(name, str) else []
    if not 0 < len(parts) <= DEEPEST or not all(PART.match(part) for part in parts):
        raise Outside("{!a:.200} is not a plain relative file name".format(name))
    top = os.path.realpath(folder)
    path = os.path.join(top, *parts)
    # A link on the way, or in the place of the file, would lead elsewhere.
    if os.path.realpath(path) != path:
        raise Outside("{} leads out of {} through a symbolic link".format(name, top))
    return path
