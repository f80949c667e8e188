"""The standard streams of a command: a loss on stdout is an error, a loss on stderr ends nothing.

They print no control character but line breaks, tabs and colors, wherever the text came from.
"""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from gpucheck.printable import for_terminal

STDIN, STDOUT, STDERR = 0, 1, 2


class NotWrittenError(Exception):
    """stdout did not take everything. reader_left: it is a pipe whose reader has ended."""

    def __init__(self, error: OSError) -> None:
        self.reader_left = error.errno in (errno.EPIPE, errno.ECONNRESET)
        self.reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        super().__init__(f"stdout: {self.reason}")


class _Descriptor(io.FileIO):
    """A descriptor that takes every byte, also one that another program left non-blocking."""

    def write(self, data: object) -> int:
        """Bytes that were taken: fewer than given only where BufferedWriter sends the rest."""
        while (taken := super().write(data)) is None:  # type: ignore[arg-type]
            import select

            select.select([], [self], [])
        return taken


class _Report(_Descriptor):
    """stdout. After the first failure everything else is dropped: the interpreter would only fail again at its end."""

    failure: OSError | None = None

    def write(self, data: object) -> int:
        """Raises NotWrittenError."""
        if self.failure is not None:
            return memoryview(data).nbytes  # type: ignore[arg-type]
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise NotWrittenError(error) from error

    def check(self) -> None:
        """Raises NotWrittenError for a loss so far. A network file system reports some only when a file is closed."""
        with suppress(OSError):  # no descriptor is left: what write() reported has to do
            copy = os.dup(self.fileno())
            try:
                os.close(copy)
            except OSError as error:
                self.failure = self.failure or error
        if self.failure is not None:
            raise NotWrittenError(self.failure)


class _Messages(_Descriptor):
    """stderr. What cannot be written there cannot be reported anywhere."""

    def write(self, data: object) -> int:
        """Never raises OSError."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


class _Printed(io.TextIOWrapper):
    def write(self, text: str) -> int:
        """Write the text with its control characters shown."""
        super().write(for_terminal(text))
        return len(text)

    def draw(self, text: str) -> int:
        return super().write(text)


def draw(stream: TextIO, text: str) -> None:
    """Write a progress display, which moves the cursor: its text must be printable already."""
    (stream.draw if isinstance(stream, _Printed) else stream.write)(text)
    stream.flush()


@contextmanager
def standard_streams() -> Iterator[None]:
    """Replace the process's stdout and stderr for a while, and open those of the three that are closed.

    Streams that a caller has already replaced, as tests do, are left alone.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    _open_closed()
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays open
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Report(STDOUT, "w", closefd=False), sys.stdout, "strict")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(STDERR, "w", closefd=False), sys.stderr, "backslashreplace")
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def finish() -> None:
    """Raise NotWrittenError unless stdout has taken everything."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Report):
        raw.check()


def _open_closed() -> None:
    """Otherwise the next file that is opened becomes stdout, and reports are written into it."""
    # Writing to a read-only stdout fails, so that the loss is reported.
    for number, mode in ((STDIN, os.O_RDONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - three times
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number, which is this one


def _text(raw: io.FileIO, like: TextIO | None, errors: str) -> TextIO:
    """Buffered even where PYTHONUNBUFFERED is set: without a buffer Python drops the rest of a short write."""
    return _Printed(
        io.BufferedWriter(raw),
        encoding=like.encoding if like is not None else "utf-8",
        errors=(like.errors if like is not None else None) or errors,
        line_buffering=like is not None and like.isatty(),
    )
