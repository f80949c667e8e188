"""gpucheck stack check: compare this host with its lock or its recorded plan."""

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from gpucheck.cli._common import (
    Problem,
    output_options,
    recording_option,
    replay_mark,
    simulation_options,
    write_result,
)
from gpucheck.cli._stack import ExistingFile, guarded, refuse


@click.command("check")
@click.option("--lock", "lock_file", type=ExistingFile, help="Compare with a lock instead of the host's own record.")
@click.option("--host", help="Name of this host in the lock. Default: its hostname.")
@click.option("--import-torch", is_flag=True, help="Also ask torch itself, in a child process (seconds).")
@click.option("--strict", is_flag=True, help="UNKNOWN outranks WARN: not knowing counts.")
@click.option("-v", "--verbose", is_flag=True, help="Spell out passes and show all evidence.")
@output_options("text", "json")
@recording_option
@simulation_options
def check(
    lock_file: Path | None,
    host: str | None,
    import_torch: bool,
    strict: bool,
    verbose: bool,
    format_: str,
    output: Path | None,
    profile: str | None,
    faults: tuple[str, ...],
    recording: Path | None,
) -> None:
    """Compare this host with what was locked for it: packages, holds, kernel modules, fabric manager, wheels.

    Without --lock the plan in /etc/gpucheck/stack.json is used, which provisioning leaves there.
    """
    from gpucheck import stack
    from gpucheck.cli._stack import this_host
    from gpucheck.cli._stack_lock import checked, planned
    from gpucheck.model import EXIT_STATUS
    from gpucheck.render import report as render

    if host and lock_file is None:
        raise Problem("--host names a host in a lock: add --lock FILE.")
    if import_torch and recording is not None:
        raise Problem("--import-torch asks the torch of this machine, and --from replays another. Give one of them.")

    def work() -> Any:
        machine = this_host(profile, faults) if recording is None else this_host(profile, faults, recording)
        if lock_file is None:
            return machine, None, ""
        return machine, *planned(lock_file, host=host or machine.system().hostname)

    machine, plan, where = guarded(work)
    if isinstance(plan, stack.Refusal):
        refuse(plan, format_, where)
    report = checked(machine, plan, str(lock_file), import_torch=import_torch, strict=strict)
    shown = replay_mark(machine) + render.to_text(report, verbose=verbose)
    text = render.to_json(report) if format_ == "json" else shown
    write_result(text if output is None else click.unstyle(text), output)
    raise Exit(EXIT_STATUS[report.verdict])
