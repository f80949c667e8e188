"""Commands: each module or package is one command, imported only when it is called, so that --help stays fast.

A command starts with a one-line docstring (its line in the help) and holds ``COMMAND``. ``_shared`` holds what several
commands use; what one command uses is in its package.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import click

from gpucheck import __version__
from gpucheck.printable import meant, one_line
from gpucheck.processes.signals import TerminatedError, ended_by_signals
from gpucheck.processes.streams import STDERR, finish, standard_streams
from gpucheck.processes.trust import programs_of_root

# Listed after those that people type every day.
RARE = frozenset({"bundle", "image", "lab", "profiles", "schema", "simulate"})

# New objects before a collection: with Python's 700, a twentieth of a short command is spent looking for garbage among
# the modules that it imports.
FEWER_COLLECTIONS = 50_000


class Commands(click.Group):
    """A group whose commands are the modules and packages of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command and nothing else."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").COMMAND
        return _with_color(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion for an unknown name."""
        names = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0].isidentifier() and args[0] not in names:
            raise click.UsageError(f"No such command '{args[0]}'.{meant(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the first line of their sources: importing them all would cost 10 x the help."""
        names = self.list_commands(ctx)
        for title, rare in (("Commands", False), ("Commands for maintainers and tests", True)):
            with formatter.section(title):
                formatter.write_dl([(name, _first_line(name)) for name in names if (name in RARE) is rare])


def _set_color(context: click.Context, _parameter: click.Parameter, value: str) -> None:
    """Decide for this command and those above it, which print its errors; auto leaves what they decided."""
    above: click.Context | None = context
    while above is not None and value != "auto":
        above.color, above = value == "always", above.parent


def _color(*, hidden: bool) -> click.Option:
    return click.Option(
        ["--color"],
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        expose_value=False,
        is_eager=True,  # before an error of another option is printed
        callback=_set_color,
        hidden=hidden,
        help="Color the output, before or after the command. auto: on a terminal, unless NO_COLOR is set or TERM is "
        "dumb.",
    )


COLOR, HIDDEN_COLOR = _color(hidden=False), _color(hidden=True)


def _with_color(command: click.Command) -> click.Command:
    """The command, and all below it, with --color, which `gpucheck --help` describes; it may have it already."""
    if HIDDEN_COLOR not in command.params:
        command.params.append(HIDDEN_COLOR)
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _with_color(one)
    return command


def _first_line(name: str) -> str:
    module = (Path(__file__).parent / name).with_suffix(".py")
    # A directory of that name may be left of an earlier version, with compiled files in it.
    with (module if module.exists() else module.with_suffix("") / "__init__.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version")
def cli() -> None:
    """Check that GPU hosts are ready for multi-GPU training.

    \b
    Exit status:
        0  all pass
        1  worst is WARN
        2  worst is FAIL
        3  worst is UNKNOWN, or nothing could be checked (no GPU, a missing program or package)
       64  wrong usage, unreadable input, or an -o path that is not writable (checked before the run)
       70  internal error of gpucheck; GPUCHECK_DEBUG=1 prints the traceback
       74  the report could not be written, regardless of the verdict
      129  hung up (SIGHUP)
      130  interrupted (Ctrl-C); what was measured is printed
      141  the reader of stdout exited first (gpucheck ... | head)
      143  terminated (SIGTERM); as above

    Only 0 to 3 are verdicts; --fail-on chooses which of them are not 0. NO_COLOR=1 and TERM=dumb turn colors off,
    --color always turns them on.
    """


cli.params.append(COLOR)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run gpucheck and exit. On a signal a command first ends what it started and removes its temporary files."""
    gc.set_threshold(FEWER_COLLECTIONS)
    with standard_streams(), ended_by_signals():
        try:
            _leave_foreign_programs()
            status = _run(arguments)
        except (Exception, KeyboardInterrupt, TerminatedError) as error:
            status = _failed(error)
        sys.exit(status)


def _leave_foreign_programs() -> None:
    """Root runs no program from the working directory, or from a directory in which another user may put one."""
    if os.geteuid() == 0 and "PATH" in os.environ:
        os.environ["PATH"], reasons = programs_of_root(os.environ["PATH"])
        for reason in reasons:
            sys.stderr.write(f"gpucheck: no program is run from PATH there: {one_line(reason)}\n")


def _failed(error: BaseException) -> int:
    """Print the message of an exception and return the exit status; never 1, which is a verdict."""
    try:
        from gpucheck.cli._shared.failure import failure

        return failure(error)
    except Exception:  # a package is missing or broken, or there is no memory to import the rest
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(": ")
        advice = "Check memory limits (free, ulimit -a), then install gpucheck again."
        with suppress(OSError):
            os.write(STDERR, f"Error: gpucheck failed: {words}. {advice}\n".encode(errors="backslashreplace"))
        return 70  # EXIT_DEFECT, whose module may be what cannot be imported


def _run(arguments: Sequence[str] | None) -> int | None:
    """The exit status of the command line. Not cli.main(), which turns any broken pipe into exit status 1."""
    if "_GPUCHECK_COMPLETE" in os.environ:
        cli.main(prog_name="gpucheck")  # answers the shell that completes a command line, and exits
    words = list(sys.argv[1:] if arguments is None else arguments)
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    status: int | None
    try:
        with cli.make_context("gpucheck", words, color=False if plain else None) as context:
            status = cli.invoke(context)
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    finish()
    return status
