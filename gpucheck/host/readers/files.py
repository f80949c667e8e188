"""Small files of sysfs and procfs, and programs that change nothing. A large machine has thousands of such files."""

import os
import subprocess
from typing import List, Optional, Sequence, Tuple, Union

Path = Union[str, "os.PathLike[str]"]
LARGEST_BYTES = 1 << 24
COMMAND_SECONDS = 60


class Unreadable(Exception):
    """The host could not be read; the message states what and why."""


def text(path: Path) -> Optional[str]:
    """Return a small file's content without surrounding space, None if it cannot be read."""
    content = content_of(path)
    return None if content is None else content.decode("utf-8", "replace").strip()


def content_of(path: Path) -> Optional[bytes]:
    """Return a small file's bytes, None if it cannot be read. It never waits: a pipe without a writer is empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        pieces: List[bytes] = []
        left = LARGEST_BYTES
        while left > 0:
            piece = os.read(descriptor, min(left, 65536))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def folder_names(path: Path) -> Optional[Tuple[str, ...]]:
    """Return the sorted names in a directory, None if there is none or it cannot be read."""
    try:
        return tuple(sorted(os.listdir(path)))
    except OSError:
        return None


def hex_id(value: Optional[str]) -> str:
    """Return ``0x10de`` as ``10de``; empty for None."""
    digits = (value or "").lower()
    return digits[2:] if digits.startswith("0x") else digits


def run(argv: Sequence[str], seconds: float = COMMAND_SECONDS) -> "subprocess.CompletedProcess[str]":
    """Run a program in the C locale until it exits. Raises Unreadable if it is missing or does not exit in time."""
    environment = dict(os.environ, LC_ALL="C")
    try:
        return subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=seconds,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable(f"{argv[0]}: {error}")


def command(argv: Sequence[str], seconds: float = COMMAND_SECONDS) -> str:
    """Return the output of a program. Raises Unreadable if it is missing, does not exit in time or fails."""
    done = run(argv, seconds)
    if done.returncode:
        raise Unreadable(f"{argv[0]}: exit {done.returncode}: {done.stderr}")
    return done.stdout
