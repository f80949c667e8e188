"""The exit status of a command that ended with an exception, and its one message."""

import errno
import os
import traceback
from pathlib import Path

import click

from gpucheck.cli._shared.progress import progress_end
from gpucheck.foreign import UnreadableInput
from gpucheck.model.finding import (
    EXIT_DEFECT,
    EXIT_INTERRUPTED,
    EXIT_NOT_WRITTEN,
    EXIT_READER_LEFT,
    EXIT_STATUS,
    EXIT_USAGE,
    Verdict,
)
from gpucheck.model.host import NotRecorded
from gpucheck.printable import indented, one_line
from gpucheck.processes.deadline import StuckError
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.signals import TerminatedError, end_children, in_a_hurry
from gpucheck.processes.streams import NotWrittenError

DEBUG = "GPUCHECK_DEBUG"
PACKAGE = Path(__file__).parents[2]
LONGEST = 600  # characters of a message
MOST_LINES = 60
# Raised for a group without a subcommand by click 8.2 and later; older ones print the help themselves.
NO_ARGUMENTS: tuple[type[click.ClickException], ...] = tuple(
    filter(None, (getattr(click.exceptions, "NoArgsIsHelpError", None),))
)


def failure(error: BaseException) -> int:
    """Print the message of an exception to stderr and return the exit status."""
    if isinstance(error, (KeyboardInterrupt, TerminatedError)):
        # A child that was being started when the signal came has no owner yet.
        if in_a_hurry():
            end_children()
        progress_end()
        click.echo(f"gpucheck: {'interrupted' if isinstance(error, KeyboardInterrupt) else 'terminated'}", err=True)
        return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else int(error.code or 0)
    if isinstance(error, NotWrittenError):
        if error.reader_left:
            return EXIT_READER_LEFT  # quiet, as every program whose output goes to head
        what_to_do = "Write the report to a file with -o, or free space on the device of stdout."
        _print_error(f"stdout: the report could not be written: {error.reason}. {what_to_do}")
        return EXIT_NOT_WRITTEN
    if isinstance(error, click.ClickException):
        _show(error)
        # click's own 2 of wrong usage would be read as FAIL.
        return EXIT_USAGE if isinstance(error, click.UsageError) else error.exit_code
    if isinstance(error, UnreadableInput):
        _print_error(str(error))
        return EXIT_USAGE
    if isinstance(error, NotRecorded):
        _print_error(f"{error.args[0]}. Record the host again with this gpucheck.")
        return EXIT_USAGE
    if isinstance(error, StuckError):
        _print_error(
            f"{error}. The driver or the kernel is unresponsive. Find processes in state D "
            "(ps -eo pid,stat,wchan,args) and read the kernel log (sudo dmesg)."
        )
        return EXIT_STATUS[Verdict.UNKNOWN]
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _print_error(f"{error.filename}: {error.strerror}. Give a shorter name.")
        return EXIT_USAGE
    if os.environ.get(DEBUG, "0") != "0":
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    # IndexError: tuple index out of range (gpucheck/checks/p2p/status.py:66), on one line
    words = one_line(" ".join(str(error).split()), LONGEST // 2)
    described = f"{type(error).__name__}{f': {words}' if words else ''}{_place(error)}"
    _print_error(f"gpucheck failed: {described}. {_advice(error)}", limit=2 * LONGEST)
    return EXIT_DEFECT


def _show(error: click.ClickException) -> None:
    """Print as click does, with a message in which nothing foreign begins a line."""
    if isinstance(error, NO_ARGUMENTS):  # its message is the help of the command
        click.echo(error.format_message(), err=True)
        return
    message = error.format_message()
    if getattr(error, "several_lines", False):
        lines = message.split("\n")[:MOST_LINES]
        message = indented("\n".join(one_line(line, LONGEST) for line in lines))
    else:
        message = one_line(message, LONGEST)
    shown = (
        click.UsageError(message, error.ctx) if isinstance(error, click.UsageError) else click.ClickException(message)
    )
    shown.show()


def _print_error(message: str, limit: int = LONGEST) -> None:
    click.echo(f"Error: {one_line(message, limit)}", err=True)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    for frame in (own or list(frames))[-1:]:
        file = Path(frame.filename)
        shown = file.relative_to(PACKAGE.parent) if own else file
        return f" ({shown}:{frame.lineno})"
    return ""


def _advice(error: BaseException) -> str:
    report = f"report it with the output of the same command and {DEBUG}=1"
    if isinstance(error, OSError) or exhausted(error):
        return (
            "The operating system rejected a call of gpucheck. This is not a fault of the GPUs. Check free space, "
            f"memory and limits (df, free, ulimit -a). If they are fine, {report}."
        )
    return f"This is a defect of gpucheck, not of the host: {report}."
