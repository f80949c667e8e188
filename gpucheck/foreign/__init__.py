"""Read input of unknown origin: files, compressed content and YAML (documents), each bounded before it is parsed.

A file is a regular one or stdin, and never more of it is read than a bound. gzip, xz and Zstandard are unpacked in
pieces: a few kB can hold terabytes. The result is the content, or an error of one line.
"""

import codecs
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STDIN = "-"
PIECE_BYTES = 1 << 20
ADVICE = "Give a file, or - for stdin"
MOST_SHOWN = 250  # characters, of each end of a message
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 1 << 27  # what a Zstandard or xz stream may ask for; the formats would allow 2 GiB and more
KINDS = {
    stat.S_IFDIR: "is a directory, not a file",
    stat.S_IFIFO: "is a FIFO (named pipe), not a regular file",
    stat.S_IFSOCK: "is a socket, not a regular file",
    stat.S_IFCHR: "is a device, not a regular file",
    stat.S_IFBLK: "is a device, not a regular file",
}


class UnreadableInput(ValueError):
    """A file that cannot be input. As text it is one line: where, what is wrong, what to do.

    where: the file's name. what: what is wrong with it.
    """

    def __init__(self, where: str, what: str, do: str = ADVICE) -> None:
        super().__init__(f"{where}: {what}. {do}.")
        self.where, self.what = where, what


def read_bytes(source: str | Path, most: int, do: str = ADVICE, shorten: str | None = None) -> bytes:
    """Return the content of a file of at most `most` bytes; ``-`` is stdin.

    do: advice, without a full stop. shorten: other advice for a file that is too large.

    Raises UnreadableInput, and nothing else. It never waits for a FIFO, and it reads no device.
    """
    pieces, left = [], most + 1
    with opened(source, do) as file:
        # In pieces: read(most) would allocate all of it at once, however short the file is.
        while left > 0 and (piece := file.read(min(left, PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    if left <= 0:
        raise UnreadableInput(shown(source), f"larger than {most >> 20} MiB", shorten or do)
    return b"".join(pieces)


def read_text(source: str | Path, most: int, do: str = ADVICE) -> str:
    try:
        return text_of(read_bytes(source, most, do))
    except UnicodeDecodeError as error:
        raise UnreadableInput(shown(source), f"byte {error.start}: not UTF-8 text", "Save the file as UTF-8") from None


def text_of(content: bytes, errors: str = "strict") -> str:
    """Return UTF-8 text, or UTF-16 that begins with a byte order mark (PowerShell writes that)."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors)
    return content.decode("utf-8-sig", errors)


@contextmanager
def opened(source: str | Path, do: str = ADVICE) -> Iterator[BinaryIO]:
    """A file to read from, for content that does not fit into memory. Raises UnreadableInput, also while it is read."""
    if str(source) == STDIN:
        with _read_errors(source, do):
            yield sys.stdin.buffer
        return
    with _read_errors(source, do):
        # Before it is opened: opening alone starts a watchdog or rewinds a tape.
        _refuse_special(source, Path(source).stat().st_mode, do)
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            _refuse_special(source, os.fstat(descriptor).st_mode, do)
            os.set_blocking(descriptor, True)
            yield file


def shown(source: str | Path) -> str:
    return "stdin" if str(source) == STDIN else str(source)


def bounded(what: str) -> str:
    """Return a message without the middle of a long one: its value may be the whole file."""
    return what if len(what) <= 2 * MOST_SHOWN else f"{what[:MOST_SHOWN]} ... {what[-MOST_SHOWN:]}"


@contextmanager
def _read_errors(source: str | Path, do: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableInput(shown(source), f"cannot be read: {error.strerror or error}", do) from error
    except ValueError as error:
        if isinstance(error, UnreadableInput) or "\0" not in str(source):
            raise
        raise UnreadableInput(repr(str(source)), "cannot be read: a file name holds no NUL", do) from error


def _refuse_special(source: str | Path, mode: int, do: str) -> None:
    kind = KINDS.get(stat.S_IFMT(mode))
    place = Path(os.path.realpath(source))
    # A pipe that this process was given, as /dev/stdin and the /dev/fd/63 of ``<(command)`` are.
    given = place.parent == Path(f"/proc/{os.getpid()}/fd") and place.name.startswith("pipe:[")
    if kind is not None and not (stat.S_ISFIFO(mode) and given):
        raise UnreadableInput(shown(source), kind, do)


def unpacked(content: bytes, most: int, where: str, do: str) -> bytes:
    """Return the content without its compression, or as it is when it has none. Raises UnreadableInput.

    most: bytes that it may unpack to. where, do: for messages.
    """
    return b"".join(unpacked_pieces(content, most, where, do))


def unpacked_pieces(content: bytes, most: int, where: str, do: str) -> Iterator[bytes]:
    """The same in pieces of at most a MiB, for readers that need not hold all of it."""
    unpacker = next((read for magic, read in UNPACKERS.items() if content.startswith(magic)), _plain)
    size = 0
    try:
        for piece in unpacker(content):
            size += len(piece)
            if unpacker is not _plain and size > most:
                raise UnreadableInput(where, f"unpacks to more than {most >> 20} MiB", do)
            yield piece
    except ModuleNotFoundError as error:
        need = f"needs the Python package {error.name}"
        raise UnreadableInput(where, need, f"Install it: python -m pip install {error.name}") from error
    except EOFError:
        raise UnreadableInput(where, "cut off in the middle", "Copy it again") from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableInput(where, f"damaged: {error}", do) from error


def _plain(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _gunzipped(content: bytes) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        yield from iter(lambda: stream.read(PIECE_BYTES), b"")


def _xz(content: bytes) -> Iterator[bytes]:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)
    piece = unpacker.decompress(content, PIECE_BYTES)
    while piece or not unpacker.eof:
        if not piece and unpacker.needs_input:
            raise EOFError
        yield piece
        piece = b"" if unpacker.eof else unpacker.decompress(b"", PIECE_BYTES)


def _zstd(content: bytes) -> Iterator[bytes]:
    import zstandard

    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        with unpacker.stream_reader(content, read_across_frames=True) as reader:
            yield from iter(lambda: reader.read(PIECE_BYTES), b"")
    except zstandard.ZstdError as error:
        raise zlib.error(str(error)) from error


UNPACKERS: Mapping[bytes, Callable[[bytes], Iterator[bytes]]] = {GZIP: _gunzipped, XZ: _xz, ZSTD: _zstd}
