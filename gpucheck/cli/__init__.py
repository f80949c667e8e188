"""One module here is one command; it is imported only when it is called, so that --help costs nothing.

A command module starts with a one-line docstring (its line in the help) and holds ``COMMAND``.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import click

from gpucheck.model.host import NotRecorded
from gpucheck.model.verdict import EXIT_INTERRUPTED, EXIT_STATUS, EXIT_USAGE, Verdict
from gpucheck.processes.signals import ended_by_signals


class Commands(click.Group):
    """A group whose commands are the modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every command module, by name."""
        return sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command and nothing else."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").COMMAND
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the first line of their sources: importing them all would cost 10 x the help."""
        rows = [(name, _first_line(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_line(name: str) -> str:
    with (Path(__file__).parent / f"{name}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpucheck")
def cli() -> None:
    """Prove that a host's GPUs are ready for multi-GPU training, and say what is wrong where they are not.

    \b
    Exit status of every judging command:
      0 all pass   1 worst is WARN   2 worst is FAIL   3 UNKNOWN or nothing could be looked at
      64 wrong usage   130 interrupted   143 told to end (SIGTERM), 129 hung up (SIGHUP)
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run gpucheck and exit. Told to end, a command first ends what it started and removes what it wrote on the way."""
    with ended_by_signals():
        sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int | None:
    """The exit status of the command line. Wrong usage is 64 (click's own 2 would read as FAIL)."""
    try:
        status: int | None = cli.main(args=arguments, prog_name="gpucheck", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except NotRecorded as error:
        click.echo(f"Error: {error.args[0]}. Record the host again with this gpucheck.", err=True)
        return EXIT_STATUS[Verdict.UNKNOWN]
    except (click.Abort, KeyboardInterrupt):
        click.echo("gpucheck: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away (| head); there is nobody left to tell.
        sys.stderr.close()
        return 1
    return status
