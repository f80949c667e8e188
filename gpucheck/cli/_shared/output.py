"""Outputs of a command: stdout, a file that is written atomically, or a named pipe or device."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from gpucheck.cli._shared.width import columns, fitted
from gpucheck.model.finding import EXIT_NOT_WRITTEN, EXIT_USAGE
from gpucheck.processes.atomic import PRIVATE, SHARED, replacing

STDOUT = Path("-")
DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/(\d+)")
NUMBERS = {"stdout": 1, "stderr": 2}
# By a file's ending or a format's name: node_exporter, another user, reads metrics.
MODES = {".prom": SHARED, "prometheus": SHARED}


class Problem(click.ClickException):
    """A clear message (what, where, why, what to do) and an exit status; EXIT_USAGE by default.

    It is printed on one line unless it is made of several lines, such as the output of a program.
    """

    several_lines = False

    def __init__(self, message: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it per class, reads it per error


@contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds, whose first argument is a sentence for the user, into wrong usage. Raises Problem."""
    try:
        yield
    except kinds as error:
        raise Problem(str(error.args[0] if error.args else error)) from error


class OutputFile(click.Path):
    """The value of -o and similar options: rejected before any work if it cannot be written."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises Problem (64)."""
        output: Path = super().convert(value, param, ctx)  # type: ignore[assignment]  # by path_type
        _refuse_unwritable(output)
        return output


def _refuse_unwritable(output: Path) -> None:
    """Raise Problem for a file that cannot be written, before any work."""
    if output == STDOUT:
        return
    try:
        number = descriptor(output)
        if number is not None:
            os.fstat(number)
        elif _is_special(output):
            # Not opened before there is something to write: opening a FIFO waits for its reader.
            if not os.access(output, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            _refuse_parent(output)
    except OSError as error:
        raise Problem(f"{output}: cannot be written: {error.strerror}. Choose another place with -o.") from error


def _refuse_parent(output: Path) -> None:
    """Raise Problem unless a file can be made in the directory; root may write to all, but not in /proc."""
    parent = output.absolute().parent
    if not parent.exists():
        raise Problem(f"{output}: cannot write the file: no directory {parent}. Create it, or choose another with -o.")
    try:
        probe = parent / f".gpucheck.{os.urandom(8).hex()}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        probe.unlink()
    except OSError as error:
        reason = f"{parent}: {error.strerror}"
        raise Problem(f"{output}: cannot write the file: {reason}. Choose another place with -o.") from error


def descriptor(output: Path) -> int | None:
    """The number of the open file that a name such as /dev/stdout or /dev/fd/63 means; None for any other name."""
    match = DESCRIPTOR.fullmatch(str(output))
    if match is None:
        return None
    return NUMBERS[match[1]] if match[1] else int(match[2])


def is_stdout(output: Path) -> bool:
    return output == STDOUT or descriptor(output) == NUMBERS["stdout"]


def replaces(output: Path) -> bool:
    """Whether a result takes the place of a file, rather than being added to a stream."""
    return output != STDOUT and descriptor(output) is None and not _is_special(output)


def drawing_only(svg: Path | None, output: Path | None) -> bool:
    """Whether --svg takes stdout, so that the text is not printed. Raises Problem where both would go there."""
    if svg is None or not is_stdout(svg):
        return False
    if output is not None and is_stdout(output):
        raise Problem("--svg - and -o - both go to stdout. Name a file for one of them.")
    return output is None


def write_result(content: str | bytes | Iterable[bytes], output: Path | None, *, mode: int = PRIVATE) -> None:
    """Print to stdout, or write the file atomically.

    mode: permissions of the file, less what the umask takes.
    Text ends with a newline, and has no colors in a file; bytes are written as they are, piece by piece where there
    are several.
    Raises Problem (74) when the file cannot be written; an existing file is then untouched.
    """
    pieces: Iterable[str | bytes] = (content,) if isinstance(content, str | bytes) else content
    if output is None or is_stdout(output):
        for piece in pieces:
            shown = fitted(piece, columns()) if isinstance(piece, str) else piece
            click.echo(shown, nl=isinstance(piece, str) and not piece.endswith("\n"))
        return
    with _new_file(output, mode) as file:
        for piece in pieces:
            text = piece if isinstance(piece, bytes) else f"{click.unstyle(piece).removesuffix(chr(10))}\n".encode()
            file.write(text)


@contextmanager
def _new_file(output: Path, mode: int) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block ends well: temporary file in the same directory, then rename.

    A pipe, a device or an open descriptor is written to directly.
    """
    try:
        number = descriptor(output)
        if number is not None:
            # Not by its name: a file that is open for appending would be cut.
            with os.fdopen(os.dup(number), "wb") as file:
                yield file
        elif _is_special(output):
            with output.open("wb") as file:
                yield file
        else:
            with replacing(output, mode=mode) as file:
                yield file
    except OSError as error:
        raise Problem(
            f"{output}: the report could not be written: {error.strerror or error}. Free space there, or choose "
            "another place with -o.",
            EXIT_NOT_WRITTEN,
        ) from error


def _is_special(output: Path) -> bool:
    """A pipe, a socket or a device. Raises OSError for a name that no file can have."""
    return output.exists() and not output.is_file() and not output.is_dir()
