"""Unpack gzip, xz and Zstandard content, in pieces: a few kB can hold terabytes."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping

from gpucheck.foreign.files import UnreadableInput

GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
PIECE_BYTES = 1 << 20
MAX_WINDOW = 1 << 27
"""What a Zstandard or xz stream may ask for; the formats would allow 2 GiB and more."""


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
