"""What several commands share: errors, options, and writing a result where it was asked for."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpucheck.model.verdict import EXIT_USAGE

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
        help="Look at a simulated machine instead of this one (see: gpucheck profiles).",
    )(command)


def output_options(*formats: str) -> Callable[[F], F]:
    """Add --format, with the given choices (the first is the default), and -o."""

    def decorate(command: F) -> F:
        command = click.option(
            "-o",
            "--output",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the report to this file instead of stdout; it appears complete or not at all.",
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


def write_result(text: str | bytes, output: Path | None) -> None:
    """Print to stdout, or write the file atomically: temporary file in the same folder, then rename.

    Text ends with a newline, bytes are written as they are.
    Raises Problem when the file cannot be written; an existing file is then untouched.
    """
    if output is None:
        click.echo(text, nl=isinstance(text, str) and not text.endswith("\n"))
        return
    content = text if isinstance(text, bytes) else f"{text.removesuffix(chr(10))}\n".encode()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(output)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Problem(f"{output}: cannot write the report: {error.strerror}. Choose another file with -o.") from error
