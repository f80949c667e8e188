"""Open a file that a person or another host names: a regular file, or stdin, and never more of it than a bound."""

import codecs
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STDIN = "-"
PIECE_BYTES = 1 << 20
ADVICE = "Give a file, or - for stdin"
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
    """Return the text of such a file. Raises UnreadableInput, also for what is neither UTF-8 nor UTF-16."""
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
    """Return the name of a source in messages."""
    return "stdin" if str(source) == STDIN else str(source)


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
    if kind is not None and not (stat.S_ISFIFO(mode) and _is_open_pipe(source)):
        raise UnreadableInput(shown(source), kind, do)


def _is_open_pipe(source: str | Path) -> bool:
    """Whether it is a pipe that this process was given, as /dev/stdin and the /dev/fd/63 of ``<(command)`` are."""
    place = Path(os.path.realpath(source))
    return place.parent == Path(f"/proc/{os.getpid()}/fd") and place.name.startswith("pipe:[")
