"""The measuring steps of a run: copies between GPUs, in children that are started when the step runs."""

import msgspec

from gpucheck.model import Finding, Host, Verdict
from gpucheck.run._step import Outcome, Step

NAME = "p2p"


def measurement_steps() -> tuple[Step, ...]:
    """One step for everything that copies: its parts share the children, the plan and one cause a pair group."""
    return (Step(NAME, frozenset({"measure"}), _p2p),)


def _p2p(host: Host) -> Outcome:
    from gpucheck.measure.bandwidth import Options, measure
    from gpucheck.measure.selection import Unmeasurable

    try:
        report = measure(host, Options())
    except Unmeasurable as error:
        return Outcome((error.finding or _nothing(str(error)),), {})
    numbers = msgspec.to_builtins(report)
    for told_elsewhere in ("findings", "counts", "host", "simulation", "schema"):
        del numbers[told_elsewhere]
    return Outcome(report.findings, numbers)


def _nothing(why: str) -> Finding:
    return Finding(check=NAME, verdict=Verdict.SKIP, subject="host", seen="not measured", why=why)
