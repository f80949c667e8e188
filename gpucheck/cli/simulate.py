"""Run a program on a simulated GPU machine"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import click

from gpucheck.cli._shared.common import Problem, become, fault_option, no_machine, note, start_simulation
from gpucheck.cli._shared.completion import PROFILE
from gpucheck.printable import printable


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@fault_option("Inject a fault. Repeatable.")
@click.option(
    "-o", "--output", "directory", metavar="DIR", help="Create a private machine in DIR instead of using the cache."
)
@click.option(
    "--mount",
    is_flag=True,
    help="Show the machine to every program: its /sys, /proc/driver and /dev in private namespaces, without a network.",
)
@click.argument("profile", required=False, shell_complete=PROFILE)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def COMMAND(  # noqa: N802 - the name the command walk looks for
    faults: tuple[str, ...],
    directory: str | None,
    mount: bool,
    profile: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND on a simulated machine.

    PROFILE is a name from gpucheck profiles, or a profile FILE.yml.

    \b
    gpucheck simulate hgx-h100-x8 -- gpustat
    gpucheck simulate p100-pcie-x2 --fault gpu-lost:gpu=1 -- nvitop -1

    The exit status is that of COMMAND.

    With --mount, programs that do not know of gpucheck find the machine where the kernel shows a real one, and
    nvidia-smi, dmesg and journalctl read it:

    \b
    gpucheck simulate hgx-h100-x8 --mount -- lspci -vv

    With -o the machine is created in a directory, and COMMAND is optional:

    \b
    gpucheck simulate hgx-h100-x8 -o /srv/machine
    GPUCHECK_SIMULATOR=/srv/machine gpucheck verify

    Other machines are cached in $XDG_CACHE_HOME/gpucheck (default: ~/.cache/gpucheck; root: /var/cache/gpucheck). If
    the cache exceeds 512 MiB, machines that were not used for an hour are removed, the oldest first.
    """
    if profile is None:
        raise Problem("no machine to simulate. Name one: gpucheck simulate PROFILE -- COMMAND (see: gpucheck profiles)")
    more = _after_profile(command)
    directory, mount, words = more.params["directory"] or directory, more.params["mount"] or mount, more.args
    if not words and (directory is None or mount):
        raise Problem("no command to run. Write it after --, for example: gpucheck simulate PROFILE -- gpustat")
    chosen = (*faults, *more.params["faults"])
    if directory is None:
        start_simulation(profile, chosen)
    else:
        if printable(directory) != directory:
            raise Problem(
                f"-o {directory}: the name contains characters that cannot be printed. Choose another directory."
            )
        _make(profile, chosen, Path(directory))
    with_faults = f" with {', '.join(chosen)}" if chosen else ""
    note(f"gpucheck: SIMULATED hardware: {profile}{with_faults}")
    if mount:
        _mount()
    if words:
        _run(words)
    click.echo(f"GPUCHECK_SIMULATOR={shlex.quote(str(Path(directory or '').resolve()))}")


def _run(words: list[str]) -> None:
    library = os.path.join(os.environ["GPUCHECK_SIMULATOR"], "lib")  # noqa: PTH118 - a search path, no file
    search = [library, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(search)}
    instead = " nvidia-smi is simulated with --mount: gpucheck simulate PROFILE --mount -- nvidia-smi."
    become(words, environment, instead if words[0] == "nvidia-smi" else "")


def _mount() -> None:
    from gpucheck.simulator.mount import enter

    try:
        not_shown = enter(Path(os.environ["GPUCHECK_SIMULATOR"]))
    except OSError as error:
        advice = (
            "Run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)."
        )
        raise Problem(f"--mount: {error.filename or error}: {error.strerror}. {advice}") from error
    note(f"gpucheck: not simulated: {', '.join(not_shown)}")


def _make(profile: str, faults: Iterable[str], directory: Path) -> None:
    from gpucheck import simulator
    from gpucheck.simulator.activation import STAND_INS

    try:
        simulator.make(simulator.load(profile), directory, faults, STAND_INS)
    except (LookupError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise Problem(f"{error.filename or directory}: {error.strerror}. Choose a writable directory.") from error
        raise no_machine(error) from error
    os.environ["GPUCHECK_SIMULATOR"] = str(directory.resolve())


def _after_profile(words: tuple[str, ...]) -> click.Context:
    """Our own options may also stand between PROFILE and the command; what is left are the words of the command."""
    own: list[click.Parameter] = [one for one in COMMAND.params if isinstance(one, click.Option)]
    again = click.Command("simulate", params=own)
    return again.make_context("simulate", list(words), allow_extra_args=True, allow_interspersed_args=False)
