"""Names that a host returned, before the controller writes a file of that name."""

import os
import re

# What package managers name their files with; no separator, no control character, no option of a program.
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,254}\Z")
DEEPEST = 8


class Outside(ValueError):
    """A name that leads out of the directory, or could; the message has the reason."""


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
