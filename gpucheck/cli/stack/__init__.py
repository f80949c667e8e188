"""Resolve, lock and check the NVIDIA software stack"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.exceptions import Exit

from gpucheck.cli._shared.common import (
    DIRECTORY,
    OutputFile,
    Problem,
    fail_on_option,
    is_stdout,
    note,
    output_options,
    recording_option,
    replay_mark,
    simulation_options,
    usage_errors,
    write_result,
)
from gpucheck.cli._shared.shown import FORMATS, write_report
from gpucheck.cli.stack import common
from gpucheck.cli.stack.common import (
    EXIT_IMPOSSIBLE,
    EXIT_UNKNOWN,
    ExistingFile,
    as_json,
    bundled,
    description_options,
    expanded,
    guarded,
    host_options,
    knowledge_option,
    lock_option,
    lock_to_read,
    planned,
    refuse,
    requested_host,
    spec_of,
)
from gpucheck.cli.stack.tables import tables_command
from gpucheck.model.finding import exit_status
from gpucheck.printable import one_line
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.repositories.fetching import Fetch
    from gpucheck.stack.plan import Plan

all_hosts_option = click.option(
    "--all-hosts",
    type=DIRECTORY,
    help="Write DIR/HOST.json for each host in the lock file: its plan, or its conflicts.",
)
bundle_option = click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Use a verified bundle as the only package source. Requires --all-hosts.",
)


@click.group("stack")
@knowledge_option
def COMMAND() -> None:  # noqa: N802 - the name every command module has
    """Resolve, lock and check the NVIDIA software stack. Read-only: no command changes a host.

    Exit status: 0 compatible versions exist, 2 there are none, 3 a GPU, system or version is unknown, 64 wrong usage.
    check: as verify.
    """


@COMMAND.result_callback()
def _status(result: int | None, **_options: Any) -> None:
    raise Exit(result or 0)


@COMMAND.command("resolve")
@host_options
@output_options("text", "json")
def resolve_command(
    wanted: tuple[str, ...], prefer: str | None, spec: Path | None, format_: str, output: Path | None, **kind: Any
) -> None:
    """Print the compatible versions for a host, and why. Default: this host.

    With --want or --spec, also why a version is not possible, and the nearest change that is.
    """
    from gpucheck import stack
    from gpucheck.stack.plan import planned_set
    from gpucheck.stack.text import stack_text

    def work() -> Any:
        (target, simulation, mark), stated = requested_host(**kind), spec_of(wanted, prefer, spec)
        found = stack.resolve_target(target, stated)
        return simulation, mark, found if isinstance(found, stack.Refusal) else planned_set(target, found, stated)

    simulation, mark, found = guarded(work)
    if isinstance(found, stack.Refusal):
        refuse(found, format_, output)
    if format_ == "json":
        text = as_json(found, simulated=True, simulation=simulation) if simulation else as_json(found)
    else:
        of_simulation = f"SIMULATED hardware: {one_line(simulation.profile)}\n" if simulation else ""
        text = mark + of_simulation + stack_text(found)
    write_result(text, output, mode=SHARED)


@COMMAND.command("lock")
@click.option("--spec", type=ExistingFile, default=Path("stack.yml"), show_default=True, help="Stack specification.")
@click.option(
    "--facts",
    multiple=True,
    required=True,
    type=ExistingFile,
    help="Facts of a host (JSON): make plan writes build/provision/facts/HOST.json. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    default=Path("stack.lock.yml"),
    show_default=True,
    help="Lock file to write; - for stdout.",
)
@click.option("--upgrade", is_flag=True, help="Resolve again even if the present lock is still valid.")
@all_hosts_option
@bundle_option
def lock_command(
    spec: Path,
    facts: tuple[Path, ...],
    output: Path,
    upgrade: bool,
    all_hosts: Path | None,
    bundle: Path | None,
) -> None:
    """Resolve each group of hosts and write the lock file.

    An unchanged lock is not written. A host without compatible versions is reported on stderr; the lock is written for
    the other hosts, and the exit status is 2 (no compatible versions) or 3 (only unknown GPUs, systems or versions).
    """
    from gpucheck.foreign import UnreadableInput
    from gpucheck.stack import read_spec
    from gpucheck.stack.facts import read_files
    from gpucheck.stack.lock import LockError, lock, read_lock_file, unreadable, write_lock
    from gpucheck.stack.plan import planned_lock
    from gpucheck.stack.text import kernel_warnings, lock_changes, refused_text

    if bundle is not None and all_hosts is None:
        raise Problem("--bundle requires --all-hosts DIR.")
    if all_hosts is not None and is_stdout(output):
        raise Problem("--all-hosts reads the lock file that is written: name a file with -o.")

    present = output.is_file() and not is_stdout(output)

    def work() -> Any:
        try:
            previous = read_lock_file(output) if present else None
        except (LockError, UnreadableInput):
            # A damaged lock is replaced only on request: it may list the versions that the hosts run today.
            if not upgrade:
                raise
            previous = None
        hosts, bad = read_files(facts)
        made = planned_lock(lock(read_spec(spec), hosts, None if upgrade else previous))
        # An unreadable file blocks only the host that it is named after.
        known = {host.host for host in hosts}
        refused = {name: unreadable(name, str(error)) for name, error in bad.items() if name not in known}
        return previous, msgspec.structs.replace(made, refused=dict(sorted({**made.refused, **refused}.items())))

    previous, made = guarded(work)
    text = write_lock(made)
    if present and output.read_text(encoding="utf-8") == text:
        note(f"{output}: unchanged")
    else:
        write_result(text, output, mode=SHARED)
        for line in lock_changes(previous, made):
            note(f"{output}: {line}")
    for line in (*refused_text(made), *kernel_warnings(made)):
        note(line)
    if all_hosts is not None:
        _write_plans(output, all_hosts, bundle)
    kinds = {refused.kind for refused in made.refused.values()}
    if kinds:
        raise Exit(EXIT_IMPOSSIBLE if "impossible" in kinds else EXIT_UNKNOWN)


@COMMAND.command("plan")
@click.option("--lock", "lock_file", type=ExistingFile, help="Lock file. Default: stack.lock.yml.")
@click.option("--host", metavar="HOST", help="Host in the lock file.")
@click.option("--group", metavar="GROUP", help="Group in the lock file.")
@all_hosts_option
@bundle_option
@description_options
@click.option(
    "--kernel", metavar="RELEASE", help="With --gpu and --os: kernel of the host or image, such as 6.8.0-31-generic."
)
@output_options("text", "json")
def plan_command(
    lock_file: Path | None,
    host: str | None,
    group: str | None,
    all_hosts: Path | None,
    bundle: Path | None,
    format_: str,
    output: Path | None,
    **described: Any,
) -> None:
    """Print the installation plan of a host or group.

    Packages, repositories, holds, files, services and the reboot rule. With --gpu and --os, of a host that is only
    described: no lock is read, and without --kernel what depends on its kernel is left out.
    """
    from gpucheck import stack
    from gpucheck.stack.plan import described_plan
    from gpucheck.stack.text import plan_text

    given = [name for name, value in described.items() if value]
    if sum(choice is not None for choice in (host, group, all_hosts, given or None)) != 1:
        raise Problem("exactly one of --host HOST, --group GROUP, --all-hosts DIR, and --gpu with --os is required.")
    if given and (lock_file is not None or not {"gpus", "os_name"} <= set(given)):
        raise Problem("a host is described by --gpu MODEL and --os SYSTEM, without --lock.")
    if bundle is not None and all_hosts is None:
        raise Problem("--bundle requires --all-hosts DIR.")
    if all_hosts is not None:
        _write_plans(lock_to_read(lock_file), all_hosts, bundle)
        return

    def of_described(
        gpus: tuple[str, ...],
        os_name: str,
        arch: str | None,
        spec: Path | None,
        kernel: str | None,
    ) -> Any:
        target, stated = stack.target_of(expanded(gpus), os_name, arch), spec_of((), None, spec)
        found = stack.resolve_target(target, stated)
        return found if isinstance(found, stack.Refusal) else described_plan(target, found, stated, kernel)

    if given:
        found, where = guarded(lambda: of_described(**described)), ""
    else:
        found, where = guarded(lambda: planned(lock_to_read(lock_file), host=host, group=group))
    if isinstance(found, stack.Refusal):
        refuse(found, format_, output, where)
    write_result(as_json(found) if format_ == "json" else plan_text(found), output, mode=SHARED)


def _write_plans(lock_file: Path, folder: Path, bundle: Path | None) -> None:
    """Write the plan, or the conflicts, of each host of a lock to FOLDER/HOST.json, and print one line per group.

    bundle: directory of the only package source; a host that it does not serve gets conflicts.

    One process for the entire fleet: starting one per host takes longer than making all plans.
    """
    from gpucheck.stack import Refusal
    from gpucheck.stack.facts import file_name
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import plan
    from gpucheck.stack.text import group_line

    def work() -> None:
        from gpucheck.bundle.contents import bundled_plan
        from gpucheck.bundle.folder import signed

        lock, unconfirmed = read_lock_file(lock_file), dict[str, int]()
        manifest = signed(bundle).manifest if bundle else None
        for host in (*lock.refused, *(host for group in lock.groups.values() for host in group.hosts)):
            place, found = folder / f"{file_name(host)}.json", plan(lock, host=host)
            if not isinstance(found, Refusal):
                unconfirmed[found.group] = len(found.unconfirmed)
                found = bundled_plan(found, manifest, str(bundle)) if manifest else found
            write_result(as_json(found), place, mode=SHARED)
        for name, group in lock.groups.items():
            click.echo(group_line(name, group, unconfirmed.get(name, 0)))

    bundled(work)


@COMMAND.command("rules")
@click.option("-o", "--output", type=OutputFile(), help="Write the page to FILE instead of stdout.")
def rules_command(output: Path | None) -> None:
    """Print the compatibility rules as a Markdown page.

    With their sources, as in docs/stack-rules.md.
    """
    from gpucheck.stack.text import rules_page

    write_result(guarded(rules_page), output, mode=SHARED)


@COMMAND.command("check")
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
def check_command(
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


@COMMAND.command("check-repositories")
@lock_option
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Check only this group of the lock file. Repeatable."
)
@click.option(
    "--index",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read indexes saved in DIR.",
)
@click.option("--save", type=DIRECTORY, help="Also save the indexes in DIR, for --index or a bug report.")
@click.option("--netrc", type=ExistingFile, help="Credentials of mirrors. Default: ~/.netrc.")
@output_options("text", "json")
def repositories_command(
    lock_file: Path,
    groups: tuple[str, ...],
    index: Path | None,
    save: Path | None,
    netrc: Path | None,
    format_: str,
    output: Path | None,
) -> int:
    """Compare planned packages with repository indexes.

    Fetches each index once, verifies its signature with the pinned key, and looks up every name, version and
    dependency. Downloads no package and changes nothing. Uses https_proxy, no_proxy and SSL_CERT_FILE.

    Exit status: 0 everything is there, 2 a package is missing or a repository is rejected, 3 an index could not be
    read.
    """
    from datetime import datetime, timezone

    from gpucheck.repositories import check_plans
    from gpucheck.repositories.comparison import to_text
    from gpucheck.repositories.fetching import Network, saved, saving

    if index is not None and (save or netrc):
        raise Problem("--index reads saved indexes only: omit --save and --netrc.")
    plans = guarded(lambda: _plans(lock_file, groups))
    now = datetime.now(timezone.utc)
    fetch: Fetch
    with usage_errors(ValueError):
        fetch = saved(index) if index is not None else Network(netrc_file=netrc).get
    try:
        report = check_plans(plans, fetch if save is None else saving(fetch, save), now)
    except OSError as error:
        raise Problem(f"{save}: cannot be written: {error.strerror or error}. Name another directory.") from error
    write_result(as_json(report) if format_ == "json" else to_text(report), output)
    return {"pass": 0, "fail": EXIT_IMPOSSIBLE, "unknown": EXIT_UNKNOWN}[report.verdict]


def _plans(lock_file: Path, groups: tuple[str, ...]) -> "list[Plan]":
    """Return the plans of the groups of a lock. A group without a plan is reported on stderr and skipped."""
    from gpucheck.stack import Refusal
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import plan

    lock = read_lock_file(lock_file)
    plans = []
    for name in groups or lock.groups:
        found = plan(lock, group=name)
        if isinstance(found, Refusal):
            reasons = "; ".join(conflict.because for conflict in found.conflicts)
            note(f"{name}: not compared: no plan: {reasons}")
        else:
            plans.append(found)
    return plans


COMMAND.add_command(tables_command)
