"""What several commands share: options, outputs, and the host that they name."""

import errno
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from gpucheck.cli._shared.completion import FAULT, PROFILE
from gpucheck.cli._shared.width import columns, fitted
from gpucheck.model.finding import EXIT_NOT_WRITTEN, EXIT_STATUS, EXIT_USAGE, FAIL_ON, Verdict
from gpucheck.printable import one_line
from gpucheck.processes.atomic import PRIVATE, replacing

if TYPE_CHECKING:
    from gpucheck.model.facts import Source


# Nothing could be looked at: no GPU, or a program or package is missing that the command needs.
STAMP = 80  # characters of a date or a version
EXIT_NOTHING = EXIT_STATUS[Verdict.UNKNOWN]
# Time limit for NVML: an unresponsive driver must not use up the time of a measurement.
NVML_SECONDS = 20.0
DAY = 86_400.0
NOT_FOUND, NOT_RUNNABLE = 127, 126  # as a shell exits
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


STDOUT = Path("-")
DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/(\d+)")
NUMBERS = {"stdout": 1, "stderr": 2}


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


class Number(click.FloatRange):
    """A finite number within limits; click's own range takes ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def seconds(least: float = 1.0) -> Number:
    """Return the type of a time limit: up to a day, which no run of a step takes."""
    return Number(min=least, max=DAY)


def once(_ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
    """Return the value of an option that is declared as repeatable, so that none is lost. Raises Problem."""
    if len(values) > 1:
        raise Problem(f"{param.opts[0]} is given {len(values)} times ({', '.join(map(str, values))}). Give it once.")
    return values[0] if values else None


F = TypeVar("F", bound=Callable[..., Any])
DIRECTORY = click.Path(file_okay=False, path_type=Path)
DIRECTORY.name = "dir"  # in help texts


def separated(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(value.strip() for text in values for value in text.split(","))


def several(name: str, metavar: str, about: str, **more: Any) -> Callable[[F], F]:
    """Add a repeatable option, of which each value may be several separated by commas."""
    return click.option(name, multiple=True, callback=separated, metavar=metavar, help=about, **more)


def level_option(about: str, *levels: str) -> Callable[[F], F]:
    """Add --level. about: the levels; quick, standard and full without `levels`."""
    choice = click.Choice(levels or ("quick", "standard", "full"))
    text = f"Extent of the run{about}"
    return click.option("--level", type=choice, default="standard", show_default=True, help=text)


# Of commands that start gpucheck on other nodes.
nodes_option = several(
    "--nodes", "NODE,...", "Test these nodes over ssh. Default: the nodes of the present Slurm allocation, with srun."
)
messages_option = click.option(
    "--sizes", default="8K,128M", show_default=True, metavar="LIST", help="A small and a large message."
)
remote_option = click.option(
    "--remote", default="gpucheck", show_default=True, metavar="COMMAND", help="Command of gpucheck on the nodes."
)

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(list(FAIL_ON)),
    default="warn",
    show_default=True,
    help="Verdicts that end with a nonzero exit status. warn: WARN, UNKNOWN and FAIL. unknown: UNKNOWN and FAIL.",
)


def timeout_option(step: str = "one call of NVML", default: float = NVML_SECONDS) -> Callable[[F], F]:
    """Add --timeout, which limits one step of the command, never its whole run. step: what that is."""
    return click.option(
        "--timeout", type=seconds(), default=default, show_default=f"{default:g}, for {step}", metavar="SECONDS",
        help="Time limit of one step.",
    )  # fmt: skip


def fault_option(about: str = "Inject a fault. Requires --simulate. Repeatable.") -> Callable[[F], F]:
    metavar = "NAME[:KEY=VALUE,...]"
    return click.option("--fault", "faults", multiple=True, shell_complete=FAULT, metavar=metavar, help=about)


def simulation_options(command: F) -> F:
    """Add --simulate and --fault. The machine is put under this process before the command runs."""

    @wraps(command)
    def run(*arguments: Any, profile: str | None, faults: tuple[str, ...], **options: Any) -> Any:
        if options.get("recording") is not None and (profile is not None or faults):
            raise Problem("--from cannot be combined with --simulate.")
        start_simulation(profile, faults)
        return command(*arguments, **options)

    simulate = click.option(
        "--simulate", "profile", multiple=True, callback=once, shell_complete=PROFILE, metavar="PROFILE",
        help="Use a simulated machine: a name from gpucheck profiles, or a profile FILE.yml.",
    )  # fmt: skip
    return simulate(fault_option()(run))  # type: ignore[return-value]  # without the two options


recording_option = click.option(
    "--from",
    "recording",
    multiple=True,
    callback=once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read a recording instead of this host.",
)


def output_options(*formats: str) -> Callable[[F], F]:
    """Add --format, as format_option does, and -o."""

    def decorate(command: F) -> F:
        command = click.option(
            "-o",
            "--output",
            type=OutputFile(),
            metavar="FILE",
            help="Write the report to FILE (atomically) instead of stdout (-).",
        )(command)
        return format_option(*formats)(command)

    return decorate


def format_option(*formats: str) -> Callable[[F], F]:
    """Add --format, with the given choices, of which the first is the default."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


def start_simulation(profile: str | None, faults: tuple[str, ...]) -> None:
    """Put the simulated machine under this process, or do nothing without a profile. Raises Problem."""
    if profile is None:
        if faults:
            raise Problem("--fault requires --simulate PROFILE.")
        return
    from gpucheck import simulator

    try:
        simulator.activate(profile, faults)
    except (LookupError, ValueError, OSError) as error:
        raise no_machine(error) from error


def no_machine(error: Exception) -> Problem:
    """Why there is no simulated machine: what was asked for is wrong, or this host cannot make it (no C compiler)."""
    status = EXIT_NOTHING if isinstance(error, OSError) else EXIT_USAGE
    problem = Problem(str(error.args[0] if error.args else error), status)
    problem.several_lines = isinstance(error, OSError)  # with what the compiler printed
    return problem


def open_host(recording: Path | None, *, deadline_s: float, health: bool = True, begin: bool = True) -> "Source":
    """The host that the options name: a recording, or this one, which may be simulated.

    deadline_s: for NVML. health, begin: as in gpucheck.host.live_source.
    """
    if recording is not None:
        from gpucheck.host.recording import read_recording

        return read_recording(recording)
    from gpucheck.host import live_source

    return live_source(isolated=True, deadline_s=deadline_s, health=health, begin=begin)


@contextmanager
def measured_host() -> "Iterator[Source]":
    """Yield this host, simulated or not, for a measurement. Raises Problem if it cannot be measured."""
    from gpucheck.host import live_source
    from gpucheck.measure.planning.selection import Unmeasurable

    try:
        yield live_source(isolated=True, deadline_s=NVML_SECONDS)
    except Unmeasurable as error:
        raise Problem(str(error), EXIT_USAGE if error.usage else EXIT_NOTHING) from error


def replay_mark(source: "Source") -> str:
    """The line that a text about a recording starts with; empty for a host that answers now."""
    from gpucheck.host.recording import Recording

    if not isinstance(source, Recording):
        return ""
    simulated = ", SIMULATED hardware" if source.simulation else ""
    redacted = ", redacted" if source.redacted else ""
    made = f"recorded on {one_line(source.recorded, STAMP)} by gpucheck {one_line(source.gpucheck, STAMP)}"
    return f"{made}{redacted}{simulated}\n"


def become(command: Sequence[str], environment: Mapping[str, str], hint: str = "") -> NoReturn:
    """Take the place of this process, so that status, signals and terminal are the command's own. Raises Problem."""
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - arguments are a list, never a shell line
    except FileNotFoundError as error:
        raise Problem(f"{command[0]}: command not found on PATH.{hint}", NOT_FOUND) from error
    except OSError as error:
        raise Problem(f"{command[0]}: cannot be run: {error.strerror}.", NOT_RUNNABLE) from error


def note(text: str) -> None:
    """Print one line to stderr."""
    click.echo(one_line(text), err=True)
