"""Files that the controller writes: atomically, and only inside the directory if a host chose the name."""

import os
import re
from functools import partial

# What package managers name their files with; no separator, no control character, no option of a program.
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,254}\Z")
# A folder of a host, in a transfer: nothing that a shell or the batch input of sftp takes for anything but a name.
REMOTE = re.compile(r"(/[A-Za-z0-9_.-]+)+\Z")
DEEPEST, LONGEST = 8, 1024


def write(path, text, mode=None):
    """Write a file atomically, with the directories that it lacks. mode: by the umask if omitted. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.partial")
    try:
        # Never readable for more users than the complete file.
        with open(unfinished, "w", encoding="utf-8", opener=partial(os.open, mode=mode or 0o666)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


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
