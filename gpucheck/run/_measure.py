"""The measuring steps of a run: copies between GPUs, in children that are started when the step runs."""

import msgspec

from gpucheck.model import Finding, Host, Verdict
from gpucheck.run._step import Outcome, Step

NAME = "p2p"
FINDINGS = (
    "p2p-copies",
    "p2p-integrity",
    "p2p-bandwidth",
    "p2p-latency",
    "p2p-against-staged",
    "p2p-both-ways",
    "links-under-load",
)
# Around the deadlines of its children: four lost ones and the start of a fifth take less.
DEADLINE_S = 600.0
# The plan's device time: 1.4 s for 2 GPUs, 8 s for 8 on NVSwitch, 10 s for 8 on PCIe. Contexts come on top.
TYPICAL_S = 10.0
ABOUT = """Copies: does every GPU pair copy right, and as fast as its path allows?

Source: copies in child processes, every byte of them compared; then timed, all directions, several sizes. The findings
are named p2p-integrity, p2p-bandwidth, p2p-latency and so on. What a pair should reach comes from a model of its path:
gpucheck topo shows it, gpucheck bandwidth measures by itself."""


def measurement_steps() -> tuple[Step, ...]:
    """One step for everything that copies: its parts share the children, the plan and one cause a pair group."""
    return (Step(NAME, frozenset({"measure"}), _p2p, DEADLINE_S, TYPICAL_S, ABOUT, FINDINGS),)


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
