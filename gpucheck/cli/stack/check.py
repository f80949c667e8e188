"""gpucheck stack check: compare this host with its lock or its recorded plan."""

from pathlib import Path
from typing import Any

import click

from gpucheck.cli._shared.common import (
    Problem,
    fail_on_option,
    output_options,
    recording_option,
    replay_mark,
    simulation_options,
)
from gpucheck.cli._shared.shown import FORMATS, write_report
from gpucheck.cli.stack import common
from gpucheck.cli.stack.common import ExistingFile, guarded, planned, refuse


@click.command("check")
@click.option(
    "--lock",
    "lock_file",
    type=ExistingFile,
    help="Compare with a lock file. Default: the plan on the host.",
)
@click.option("--host", metavar="HOST", help="Name of this host in the lock file. Default: its hostname.")
@click.option("--import-torch", is_flag=True, help="Also import torch in a child process (takes seconds).")
@fail_on_option
@click.option("-v", "--verbose", is_flag=True, help="Show passed checks and all evidence.")
@output_options(*FORMATS)
@recording_option
@simulation_options
def check(
    lock_file: Path | None,
    host: str | None,
    import_torch: bool,
    fail_on: str,
    verbose: bool,
    format_: str,
    output: Path | None,
    recording: Path | None,
) -> int:
    """Compare this host with its plan.

    Compares packages, holds, kernel modules, fabric manager and wheels. Without --lock, the plan in
    /etc/gpucheck/stack.json is used, which provisioning writes.
    """
    from gpucheck import stack
    from gpucheck.model.finding import exit_status
    from gpucheck.render.subjects.report import document
    from gpucheck.run.plan import compared

    if host and lock_file is None:
        raise Problem("--host requires --lock FILE.")
    if import_torch and recording is not None:
        raise Problem("--import-torch cannot be combined with --from: torch is imported on this host.")

    def work() -> Any:
        machine = common.this_host(recording)
        if lock_file is None:
            return machine, None, ""
        return machine, *planned(lock_file, host=host or machine.read("system").system.hostname)

    machine, plan, where = guarded(work)
    if isinstance(plan, stack.Refusal):
        refuse(plan, format_, None if format_ == "html" else output, where)  # it is no page
    report = compared(machine, plan, str(lock_file), import_torch=import_torch)
    recorded = replay_mark(machine).strip()
    write_report(
        report,
        lambda: document(report, command="stack check")._replace(recorded=recorded),
        format_,
        output,
        verbose=verbose,
    )
    return exit_status((finding.verdict for finding in report.findings), fail_on)
