"""Profiles in a file of the user."""

from gpucheck.foreign import read_text

MOST_BYTES = 16 << 20


def is_file(name: str) -> bool:
    """Whether the name of a profile is a path: names from ``profiles/`` have neither directory nor suffix."""
    return "/" in name or name.endswith((".yml", ".yaml"))


def profile_text(name: str) -> str:
    """Return the text of the file. Raises UnreadableInput."""
    return read_text(name, MOST_BYTES, "Give a profile like those of gpucheck/simulator/profiles")
