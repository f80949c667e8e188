"""Open what a reports folder holds: regular files only, unpacked within a limit, and never waited for."""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# A report of an 8-GPU host is about 60 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024
PACKED = (".gz", ".zst")
# What a packed file may grow to: reports and merges shrink 10 to 40 times.
MAX_UNPACKED = 1024 * 1024 * 1024
MAX_RATIO = 200
CHUNK = 1024 * 1024
KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class TooLargeError(ValueError):
    """A file holds more than any of its kind."""


@contextmanager
def opened(path: Path, limit: int, *, what: str = "host report") -> Iterator[io.BufferedReader]:
    """Open a regular file, unpacked by its ending.

    limit: bytes that it may hold. what: it is, for the message.
    Raises OSError, EOFError or ValueError; TooLargeError before or while it is read.
    """
    # Asked before it is opened: opening a FIFO waits for its writer, and opening some devices acts on them.
    status = _status(path)
    packed = path.suffix in PACKED
    if status.st_size > limit:
        raise TooLargeError(f"larger than {limit // 2**20} MiB, so it is no {what}")
    bound = min(limit, MAX_UNPACKED, max(MAX_BYTES, status.st_size * MAX_RATIO)) if packed else limit
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as raw:  # noqa: PTH123 - a descriptor
        stream, broken = _unpacked(raw, path.suffix)
        yield io.BufferedReader(_Limited(stream, bound, what, broken), CHUNK)


def unpacked(path: Path, limit: int = MAX_UNPACKED, *, what: str = "host report") -> bytes:
    """Return the content of a file, as `opened` gives it. Raises what that raises."""
    with opened(path, limit, what=what) as file:
        return file.read()


def _status(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise ValueError("is a link to a file that does not exist") from None
        raise
    if not stat.S_ISREG(status.st_mode):
        kind = next((words for is_kind, words in KINDS if is_kind(status.st_mode)), "not a regular file")
        raise ValueError(f"is {kind}, not a file")
    return status


def _unpacked(raw: IO[bytes], suffix: str) -> tuple[IO[bytes], tuple[type[Exception], ...]]:
    """Return the unpacking stream, and what else than OSError a damaged file raises. Raises ModuleNotFoundError."""
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw), (zlib.error,)
    if suffix != ".zst":
        return raw, ()
    import zstandard

    # max_window_size: what a frame may ask for; the format would allow 2 GiB.
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
    return unpacker.stream_reader(raw, read_across_frames=True), (zstandard.ZstdError,)


class _Limited(io.RawIOBase):
    """A stream that refuses to grow: a few kB can hold terabytes, and a file can grow while it is read."""

    def __init__(self, stream: IO[bytes], limit: int, what: str, broken: tuple[type[Exception], ...]) -> None:
        self._stream, self._limit, self._what, self._broken = stream, limit, what, broken
        self._left = limit

    def readable(self) -> bool:
        """Say so to io.BufferedReader."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader hands on
        """Read the next piece. Raises TooLargeError beyond the limit, ValueError where the packed file is damaged."""
        try:
            piece = self._stream.read(min(len(buffer), CHUNK))
        except self._broken as error:
            raise ValueError(str(error)) from error
        self._left -= len(piece)
        if self._left < 0:
            raise TooLargeError(f"unpacks to more than {self._limit // 2**20} MiB, so it is no {self._what}")
        buffer[: len(piece)] = piece
        return len(piece)
