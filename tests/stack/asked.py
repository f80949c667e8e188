"""The resolver asked with a short specification: its set, its plan, or its first conflict."""

from gpucheck.stack import Refusal, StackSet, StackSpec, resolve, wants
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import parse_spec
from tests.stack.hosts import host


def answer(gpus, os, *want, **more) -> StackSet:
    """The set; fails the test if it was refused."""
    found = resolve(gpus, os, spec=wants(want), **more)
    assert isinstance(found, StackSet), found
    return found


def refusal(gpus, os, *want, **more):
    """The first conflict; fails the test if a set was found."""
    found = resolve(gpus, os, spec=wants(want), **more)
    assert isinstance(found, Refusal), found
    return found.conflicts[0]


def planned(spec: StackSpec | str = "", system: str = "rocky-9", gpus: str = "t4-x1", **changes: object) -> Plan:
    """The plan of one host; fails the test if it was refused. changes: of the host's facts."""
    asked = parse_spec(spec, "stack.yml") if isinstance(spec, str) else spec
    found = plan(lock(asked, [host(system, gpus, "node01", **changes)]), host="node01")
    assert isinstance(found, Plan), found
    return found
