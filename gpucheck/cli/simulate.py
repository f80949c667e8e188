"""Run any NVML client (gpustat, nvitop, your own) on a simulated machine."""

import os

import click

from gpucheck.cli._common import Problem, start_simulation

NOT_FOUND, NOT_RUNNABLE = 127, 126  # as a shell says it


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--fault", "faults", multiple=True, metavar="NAME[:KEY=VALUE,...]", help="Break the machine. Repeatable.")
@click.argument("profile")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def COMMAND(faults: tuple[str, ...], profile: str, command: tuple[str, ...]) -> None:  # noqa: N802 - the name walked for
    """Run COMMAND on the simulated machine PROFILE.

    \b
    gpucheck simulate hgx-h100-x8 -- gpustat
    gpucheck simulate p100-pcie-x2 --fault gpu-lost:gpu=1 -- nvitop -1

    The command's exit status is passed on.
    """
    more_faults, words = _faults_after_profile(command)
    if not words or words[0] == "--fault":
        raise Problem("no command to run. Write it after --, for example: gpucheck simulate PROFILE -- gpustat")
    chosen = (*faults, *more_faults)
    start_simulation(profile, chosen)
    told = f" with {', '.join(chosen)}" if chosen else ""
    click.echo(f"gpucheck: SIMULATED hardware: {profile}{told}", err=True)
    library = os.path.join(os.environ["GPUCHECK_SIMULATOR"], "lib")  # noqa: PTH118 - a search path, no file
    search = [library, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(search)}
    try:
        # Taking our place rather than being our child: status, signals and the terminal are its own.
        os.execvpe(words[0], words, environment)  # noqa: S606 - arguments are a list, never a shell line
    except FileNotFoundError as error:
        raise Problem(f"{words[0]}: there is no such command on PATH.", NOT_FOUND) from error
    except OSError as error:
        raise Problem(f"{words[0]}: cannot be run: {error.strerror}.", NOT_RUNNABLE) from error


def _faults_after_profile(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Our own options may also stand between PROFILE and the command; from ``--`` on everything is the command's."""
    faults: list[str] = []
    rest = list(words)
    while rest and rest[0] != "--":
        if rest[0] == "--fault" and len(rest) > 1:
            faults.append(rest[1])
            rest = rest[2:]
        elif rest[0].startswith("--fault="):
            faults.append(rest.pop(0).partition("=")[2])
        else:
            break
    return faults, rest[1:] if rest[:1] == ["--"] else rest
