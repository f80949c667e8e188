"""Profiles that are somebody's own file instead of one of ours."""

from pathlib import Path

MOST_BYTES = 16 << 20


def is_file(name: str) -> bool:
    """Does the name of a profile mean a file? Ours have neither a folder nor an ending."""
    return "/" in name or name.endswith((".yml", ".yaml"))


def profile_text(name: str) -> str:
    """The file's text. Raises ValueError with the whole message in args[0]."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"{name}: cannot be read: {error.strerror}. Give a profile that gpucheck profiles --from wrote."
        ) from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name}: is larger than {MOST_BYTES >> 20} MiB, which no profile is")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: is no text, and so no profile") from error
