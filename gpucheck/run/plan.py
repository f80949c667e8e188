"""Compare a host with the plan of its stack, as ``gpucheck stack check`` does."""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gpucheck.checks.software import stack
from gpucheck.model import Host, Report
from gpucheck.run import CHECK_S, Outcome, Step, verify
from gpucheck.run.import_torch import ask_torch

if TYPE_CHECKING:
    from gpucheck.stack.plan import Plan


def compared(host: Host, plan: "Plan | None", where: str, *, import_torch: bool, strict: bool) -> Report:
    """Return the report of the check that compares a host with its plan. plan None: the plan on the host.

    where: the lock file, for findings. import_torch: also import torch in a child process.
    """
    probe: Any = stack.probe
    if plan is not None:
        probe = partial(probe, plan=msgspec.json.encode(plan).decode(), where=where)
    if import_torch:
        probe = partial(probe, imported=ask_torch())

    def run(machine: Host) -> Outcome:
        return Outcome(tuple(stack.evaluate(probe(machine))), {})

    return verify(host, [Step(stack.NAME, stack.CHECK.tags, run, stack.CHECK.seconds, CHECK_S)], strict=strict)
