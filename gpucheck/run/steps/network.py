"""The measuring step of network cards, and the run of ``gpucheck network``: perftest in processes of their own."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpucheck.checks import checks_of
from gpucheck.checks.network.counters import while_moved
from gpucheck.checks.network.transfers import NAME
from gpucheck.diagnose.rules.nics import LATENCY, doubtful
from gpucheck.model import Verdict
from gpucheck.model.facts import Facts, Source
from gpucheck.run.conclusion import conclude
from gpucheck.run.links import evaluate_links
from gpucheck.run.step import Outcome, RunStep, numbers_of

if TYPE_CHECKING:
    from gpucheck.measure.network import NetworkOptions
    from gpucheck.model.network import NetworkReport, Transferred

FINDINGS = (LATENCY, "nic-gpu-memory")
DEADLINE_S = 600.0
# Four tests of a second on each of eight cards, then all at once.
TYPICAL_S = 40.0
ABOUT = """Network cards: does each move data as fast as its port and its PCIe path allow?

Source: perftest (ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat) within each card, with host memory and, where it
was built for it, with the memory of a GPU; then all cards at once. Counters are read between the steps. A number is
compared with the least of port rate, PCIe path and GPU link. How it is evaluated: docs/network.md. By itself: gpucheck
network."""


def network_step() -> RunStep:
    return RunStep(NAME, frozenset({"measure", "full"}), _network, DEADLINE_S, TYPICAL_S, ABOUT, FINDINGS)


def network(
    source: Source,
    options: "NetworkOptions",
    on_step: Callable[[str], None] = lambda _: None,
    keep: "Callable[[NetworkReport], None]" = lambda _: None,
) -> "NetworkReport":
    """Measure and evaluate. Raises gpucheck.measure.planning.selection.Unmeasurable for a card that is not there.

    keep: as of gpucheck.measure.values.Watch.
    """
    from gpucheck.measure.network import measure

    def evaluated(report: "NetworkReport", moved: "Transferred") -> "NetworkReport":
        facts = Facts(transferred=moved)
        own = (one for check in checks_of(NAME) for one in check.evaluate(facts))
        every = (*report.findings, *own, *evaluate_links(report.observations), *while_moved(facts))
        found, verdict, counts = conclude(every, source.read("nvml").gpus)
        return replace(report, findings=found, verdict=verdict, counts=counts)

    return measure(source, options, doubtful, evaluated, on_step, keep)


def _network(source: Source) -> Outcome:
    from gpucheck.measure.network import NetworkOptions

    report = network(source, NetworkOptions())
    nothing = not any(row.value is not None for row in report.results)
    idle = all(finding.verdict in (Verdict.SKIP, Verdict.PASS) for finding in report.findings)
    numbers = {} if nothing else numbers_of(replace(report, observations=type(report.observations)()))
    return Outcome(report.findings, numbers, () if idle or not nothing else ("network cards, not measured",))
