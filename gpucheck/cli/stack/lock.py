"""Lock files and plans of the stack commands."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gpucheck.cli._shared.common import write_result
from gpucheck.cli.stack.common import as_json, bundled, expanded, spec_of
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.stack import Refusal
    from gpucheck.stack.lock import Lock
    from gpucheck.stack.plan import Plan


def made_lock(spec: Path, facts: tuple[Path, ...], previous: "Lock | None") -> "Lock":
    """Return the lock of a specification and facts. Raises SpecError, FactsError and LockError.

    An unreadable facts file blocks only the host that it is named after.
    """
    from gpucheck import stack
    from gpucheck.stack.facts import read_files
    from gpucheck.stack.lock import lock, unreadable
    from gpucheck.stack.plan import planned_lock

    hosts, bad = read_files(facts)
    made = planned_lock(lock(stack.read_spec(spec), hosts, previous))
    known = {host.host for host in hosts}
    refused = {name: unreadable(name, str(error)) for name, error in bad.items() if name not in known}
    return msgspec.structs.replace(made, refused=dict(sorted({**made.refused, **refused}.items())))


def planned(lock_file: Path, *, host: str | None = None, group: str | None = None) -> "tuple[Plan | Refusal, str]":
    """Return the plan from a lock file; with conflicts, also file, line and group of the edited entry."""
    from gpucheck.stack import Refusal
    from gpucheck.stack.lock import line_in_lock, read_lock, read_lock_text
    from gpucheck.stack.plan import plan

    text = read_lock_text(lock_file)
    lock = read_lock(text, str(lock_file))
    found = plan(lock, host=host, group=group)
    if not isinstance(found, Refusal):
        return found, ""
    name = group or next((n for n, g in lock.groups.items() if host in g.hosts), None)
    return found, f"{lock_file}:{line_in_lock(text, name, 'stack')}: {name}" if name else ""


def described_host_plan(
    gpus: tuple[str, ...],
    os_name: str,
    arch: str | None,
    nvswitches: int | None,
    spec: Path | None,
    kernel: str | None,
) -> "Plan | Refusal":
    """Return the plan of a host that the options describe. Raises SpecError and UnknownInput."""
    from gpucheck.stack import Refusal, resolve_target, target_of
    from gpucheck.stack.plan import described_plan

    target, stated = target_of(expanded(gpus), os_name, arch, nvswitches=nvswitches), spec_of((), None, spec)
    found = resolve_target(target, stated)
    return found if isinstance(found, Refusal) else described_plan(target, found, stated, kernel)


def write_plans(lock_file: Path, folder: Path, bundle: Path | None = None) -> list[str]:
    """Write the plan, or the conflicts, of each host of a lock to FOLDER/HOST.json. Return one line per group.

    bundle: directory of the only package source; a host that it does not serve gets conflicts.

    One process for the entire fleet: starting one per host takes longer than making all plans.
    """
    from gpucheck.stack import Refusal
    from gpucheck.stack.facts import file_name
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import plan
    from gpucheck.stack.text import group_line

    lock = read_lock_file(lock_file)
    served = from_bundle(bundle) if bundle else lambda found: found
    unconfirmed: dict[str, int] = {}
    for host in (*lock.refused, *(host for group in lock.groups.values() for host in group.hosts)):
        place, found = folder / f"{file_name(host)}.json", plan(lock, host=host)
        if not isinstance(found, Refusal):
            unconfirmed[found.group] = len(found.unconfirmed)
        write_result(as_json(served(found)), place, mode=SHARED)
    return [group_line(name, group, unconfirmed.get(name, 0)) for name, group in lock.groups.items()]


def echo_plans(lock_file: Path, every: Path, bundle: Path | None) -> None:
    """Write the plans of all hosts and print one line per group."""
    for line in bundled(lambda: write_plans(lock_file, every, bundle)):
        click.echo(line)


def from_bundle(folder: Path) -> "Callable[[Plan | Refusal], Plan | Refusal]":
    """Return a function that makes a bundle the only source of a plan. Raises BundleError."""
    from gpucheck.bundle.contents import bundled_plan
    from gpucheck.bundle.folder import signed
    from gpucheck.stack import Refusal

    manifest = signed(folder).manifest
    return lambda found: found if isinstance(found, Refusal) else bundled_plan(found, manifest, str(folder))
