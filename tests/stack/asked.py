"""Query the resolver with a short specification: the set, the plan, or the first conflict; all else fails the test."""

from collections.abc import Iterable

from gpucheck.stack import HostFacts, Refusal, StackSet, StackSpec, resolve, wants
from gpucheck.stack.lock import Lock, lock, read_lock, write_lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import parse_spec
from gpucheck.stack.types import Conflict
from tests.stack.hosts import host


def answer(gpus, os, *want, spec: StackSpec | None = None, **more) -> StackSet:
    """Return the set. want: the specification as of --want, unless spec is given."""
    found = resolve(gpus, os, spec=spec or wants(want), **more)
    assert isinstance(found, StackSet), found
    return found


def refusal(gpus, os, *want, spec: StackSpec | None = None, **more) -> Conflict:
    """Return the first conflict. want: as of ``answer``."""
    found = resolve(gpus, os, spec=spec or wants(want), **more)
    assert isinstance(found, Refusal), found
    return found.conflicts[0]


def plan_of(spec: StackSpec, hosts: Iterable[HostFacts], **which: str) -> Plan:
    """Return the plan of a host or a group."""
    found = plan(lock(spec, hosts), **which)
    assert isinstance(found, Plan), found
    return found


def planned(spec: StackSpec | str = "", system: str = "rocky-9", gpus: str = "t4-x1", **changes: object) -> Plan:
    """Return the plan of one host. changes: of the host's facts."""
    asked = parse_spec(spec, "stack.yml") if isinstance(spec, str) else spec
    return plan_of(asked, [host(system, gpus, "node01", **changes)], host="node01")


def rejected(spec: StackSpec, system: str, gpus: str, **changes: object) -> Conflict:
    """Return the first conflict of the plan of one host."""
    found = plan(lock(spec, [host(system, gpus, "node01", **changes)]), host="node01")
    assert isinstance(found, Refusal), found
    return found.conflicts[0]


def reread(spec: StackSpec, *hosts: HostFacts) -> Lock:
    """Return the lock of hosts as it is read from its file."""
    return read_lock(write_lock(lock(spec, hosts)), "stack.lock.yml")
