"""Small files of sysfs and procfs, read without ceremony: a large machine has thousands of them."""

import os
from pathlib import Path

LARGEST_BYTES = 1 << 20


def text(path: str | Path) -> str | None:
    """A small file's content without the space around it, None where it cannot be read."""
    content = content_of(path)
    return None if content is None else content.decode(errors="replace").strip()


def content_of(path: str | Path) -> bytes | None:
    """A small file's bytes, None where it cannot be read. It never waits: a pipe without a writer is empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        pieces: list[bytes] = []
        left = LARGEST_BYTES
        while left > 0 and (piece := os.read(descriptor, min(left, 65536))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def folder_names(path: str | Path) -> tuple[str, ...] | None:
    """Return the sorted names in a directory, None if it is missing or unreadable."""
    try:
        return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return None


def hex_id(value: str | None) -> str:
    """Return ``0x10de`` as ``10de``; empty without a value."""
    return (value or "").removeprefix("0x").lower()
