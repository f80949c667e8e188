"""Profiles that are somebody's own file instead of one of ours."""

from gpucheck.foreign import read_text

MOST_BYTES = 16 << 20


def is_file(name: str) -> bool:
    """Does the name of a profile mean a file? Ours have neither a folder nor an ending."""
    return "/" in name or name.endswith((".yml", ".yaml"))


def profile_text(name: str) -> str:
    """The file's text. Raises UnreadableInput."""
    return read_text(name, MOST_BYTES, "Give a profile that gpucheck profiles --from wrote")
