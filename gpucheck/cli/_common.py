"""What several commands share: errors, options, and writing a result where it was asked for."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from gpucheck.model.verdict import EXIT_USAGE

if TYPE_CHECKING:
    from gpucheck.model import Host

EXIT_UNREADABLE = 3
F = TypeVar("F", bound=Callable[..., Any])


class Problem(click.ClickException):
    """A clear message (what, where, why, what to do) and an exit status; wrong usage unless told otherwise."""

    def __init__(self, message: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it per class, reads it per error


def simulation_options(command: F) -> F:
    """Add --simulate and --fault."""
    command = click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="NAME[:KEY=VALUE,...]",
        help="Break the simulated machine. Repeatable; needs --simulate.",
    )(command)
    return click.option(
        "--simulate",
        "profile",
        metavar="PROFILE",
        help="Look at a simulated machine instead of this one: a name of gpucheck profiles, or a profile's FILE.yml.",
    )(command)


def recording_option(command: F) -> F:
    """Add --from."""
    return click.option(
        "--from",
        "recording",
        type=click.Path(path_type=Path),
        metavar="RECORDING",
        help="Look at what gpucheck record kept of a host instead of this one.",
    )(command)


def output_options(*formats: str, folder: bool = False) -> Callable[[F], F]:
    """Add --format, with the given choices (the first is the default), and -o. folder: one of them writes a folder."""

    def decorate(command: F) -> F:
        command = click.option(
            "-o",
            "--output",
            type=click.Path(dir_okay=folder, path_type=Path),
            help="Write the report to this file instead of stdout; it appears complete or not at all."
            + (" With --format all: the folder." if folder else ""),
        )(command)
        return click.option("--format", "format_", type=click.Choice(formats), default=formats[0], show_default=True)(
            command
        )

    return decorate


def start_simulation(profile: str | None, faults: tuple[str, ...]) -> None:
    """Put the simulated machine under this process, or do nothing without a profile. Raises Problem."""
    if profile is None:
        if faults:
            raise Problem("--fault breaks a simulated machine, and none was chosen. Add --simulate PROFILE.")
        return
    from gpucheck import simulator

    try:
        simulator.activate(profile, faults)
    except (LookupError, ValueError, OSError) as error:
        raise Problem(str(error.args[0] if error.args else error)) from error


def open_host(
    profile: str | None,
    faults: tuple[str, ...],
    recording: Path | None,
    *,
    deadline_s: float,
    health: bool = True,
    begin: bool = True,
) -> "Host":
    """The host that the options name: a simulated machine, a recording, or this one. Raises Problem.

    deadline_s: for NVML. health, begin: as in gpucheck.host.live_host.
    """
    if recording is not None:
        if profile is not None or faults:
            raise Problem("--from replays a recording and --simulate makes a machine. Give one of them.")
        return _replayed(recording)
    start_simulation(profile, faults)
    from gpucheck.host import live_host

    return live_host(isolated=True, deadline_s=deadline_s, health=health, begin=begin)


def _replayed(recording: Path) -> "Host":
    from gpucheck.host.recording import ReplayHost
    from gpucheck.host.recording_file import RecordingProblem, read_recording

    try:
        return ReplayHost(read_recording(recording))
    except RecordingProblem as error:
        raise Problem(str(error), EXIT_USAGE if error.usage else EXIT_UNREADABLE) from error


def replay_mark(host: "Host") -> str:
    """The line that a text about a recording starts with; empty for a host that answers now."""
    recording = getattr(host, "recording", None)
    if recording is None:
        return ""
    simulated = ", SIMULATED hardware" if recording.simulation else ""
    redacted = ", redacted" if recording.redacted else ""
    return f"recorded on {recording.recorded} by gpucheck {recording.gpucheck}{redacted}{simulated}\n"


def progress(step: str) -> None:
    """Name what is being done, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[Kgpucheck: {step} ...", err=True, nl=False)


def progress_end() -> None:
    """Take the name away."""
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)


@contextmanager
def new_file(output: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block ends well: temporary file in the same folder, then rename.

    It is made before the block, so that a folder that cannot be written is refused before the work.
    Raises Problem when the file cannot be written; an existing file is then untouched.
    """
    if output.exists() and not output.is_file():
        raise Problem(f"{output}: is not a regular file, so it cannot be replaced by one. Choose another file with -o.")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            Path(temporary).chmod(mode)
            Path(temporary).replace(output)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Problem(f"{output}: cannot write the file: {error.strerror}. Choose another file with -o.") from error


def write_result(content: str | bytes | Iterable[bytes], output: Path | None) -> None:
    """Print to stdout, or write the file atomically.

    Text ends with a newline; bytes are written as they are, piece by piece where there are several.
    Raises Problem when the file cannot be written; an existing file is then untouched.
    """
    pieces: Iterable[str | bytes] = (content,) if isinstance(content, str | bytes) else content
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=isinstance(piece, str) and not piece.endswith("\n"))
        return
    with new_file(output) as file:
        for piece in pieces:
            file.write(piece if isinstance(piece, bytes) else f"{piece.removesuffix(chr(10))}\n".encode())
