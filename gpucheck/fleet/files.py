"""Open what a reports directory holds: unpacked within a limit, a piece at a time."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from gpucheck import foreign
from gpucheck.foreign.packed import MAX_WINDOW

# A report of an 8-GPU host is about 60 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024
PACKED = (".gz", ".zst")
# What a packed file may grow to: reports and merges shrink 10 to 40 times.
MAX_UNPACKED = 1024 * 1024 * 1024
MAX_RATIO = 200
CHUNK = 1024 * 1024
CUT_OFF = "cannot be unpacked: it is cut off in the middle"
INSTALL = "Install it: python -m pip install zstandard"


class TooLargeError(foreign.UnreadableInput):
    """A file that holds more than any of its kind."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@contextmanager
def opened(path: Path, limit: int, do: str) -> Iterator[io.BufferedReader]:
    """Open a file, unpacked by its ending, to be read piece by piece.

    limit: bytes that it may hold. do: advice, without a full stop. Raises foreign.UnreadableInput, also while it is
    read; TooLargeError before it is, if its size is known.
    """
    with foreign.opened(path, do) as raw:
        size = os.fstat(raw.fileno()).st_size
        if size > limit:
            raise TooLargeError(str(path), f"larger than {limit // 2**20} MiB", do)
        packed = path.suffix in PACKED
        bound = min(limit, MAX_UNPACKED, max(MAX_BYTES, size * MAX_RATIO)) if packed else limit
        try:
            stream, broken = _unpacked(raw, path.suffix)
            yield io.BufferedReader(_Limited(stream, path, bound, do, broken), CHUNK)
        except ModuleNotFoundError as error:
            need = f"needs the Python package {error.name}"
            raise foreign.UnreadableInput(str(path), need, INSTALL) from error


def read_most(file: io.BufferedReader, most: int) -> bytes:
    """Return at most so many bytes, in pieces: read(most) would allocate all of it first."""
    pieces = []
    while most > 0 and (piece := file.read(min(most, CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _unpacked(raw: IO[bytes], suffix: str) -> tuple[_Readable, tuple[type[Exception], ...]]:
    """Return the unpacking stream, and what else than OSError a damaged file raises. Raises ModuleNotFoundError."""
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw), (zlib.error, gzip.BadGzipFile)
    if suffix != ".zst":
        return raw, ()
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    return unpacker.stream_reader(raw, read_across_frames=True), (zstandard.ZstdError,)


class _Limited(io.RawIOBase):
    """A stream with a size limit: a few kB can hold terabytes, and a file can grow while it is read."""

    def __init__(self, stream: _Readable, path: Path, limit: int, do: str, broken: tuple[type[Exception], ...]) -> None:
        self._stream, self._path, self._limit, self._do, self._broken = stream, path, limit, do, broken
        self._left = limit

    def readable(self) -> bool:
        """Return True, for io.BufferedReader."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader hands on
        """Read the next piece. Raises UnreadableInput where the packed file is damaged or too large."""
        try:
            piece = self._stream.read(min(len(buffer), CHUNK))
        except EOFError:
            raise foreign.UnreadableInput(str(self._path), CUT_OFF, self._do) from None
        except self._broken as error:
            raise foreign.UnreadableInput(str(self._path), f"cannot be unpacked: {error}", self._do) from error
        self._left -= len(piece)
        if self._left < 0:
            raise TooLargeError(str(self._path), f"unpacks to more than {self._limit // 2**20} MiB", self._do)
        buffer[: len(piece)] = piece
        return len(piece)
