"""Measure links and diagnose the measurements."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpucheck.checks import checks_of
from gpucheck.checks.collectives import ranks
from gpucheck.diagnose import diagnose, doubtful
from gpucheck.model import Finding, Verdict
from gpucheck.model.collectives import Collected
from gpucheck.model.copies import Copied
from gpucheck.model.diagnosis.observations import Measured, Observations
from gpucheck.model.facts import Facts, Source
from gpucheck.run.conclusion import conclude

if TYPE_CHECKING:
    from gpucheck.measure.bandwidth import BandwidthOptions
    from gpucheck.measure.collectives.run import CollectiveOptions
    from gpucheck.measure.values import Watch
    from gpucheck.model.bandwidth import BandwidthReport
    from gpucheck.model.collectives import CollectivesReport

# What fails however busy the GPUs were.
DATA = "p2p-integrity"


def bandwidth(source: Source, options: "BandwidthOptions", watch: "Watch | None" = None) -> "BandwidthReport":
    """Measure and diagnose copies between the GPUs of this host; low pairs are measured again alone.

    Raises gpucheck.measure.planning.selection.Unmeasurable when there is nothing to measure, or not as asked.
    """
    from gpucheck.measure.bandwidth import measure
    from gpucheck.measure.values import Watch

    return measure(source, options, watch or Watch(), doubtful, evaluated)


def evaluated(report: "BandwidthReport", copied: Copied) -> "BandwidthReport":
    """Return a measured report with its findings and its diagnosis."""
    facts = Facts(copied=copied)
    own = (finding for check in checks_of("p2p") for finding in check.evaluate(facts))
    found = evaluate_links(report.observations)
    if report.contended:
        found = tuple(_cannot_fail(finding) for finding in found)
    findings, verdict, counts = conclude((*own, *found), report.devices)
    return replace(report, findings=findings, verdict=verdict, counts=counts)


def collectives(
    source: Source, options: "CollectiveOptions", keep: "Callable[[CollectivesReport], None]" = lambda _: None
) -> "CollectivesReport":
    """Measure and diagnose collectives between ranks. Raises Unmeasurable if the request cannot be met.

    keep: as of gpucheck.measure.values.Watch.
    """
    from gpucheck.measure.collectives.run import measure

    def judge(collected: Collected) -> "CollectivesReport":
        report, facts = collected.report, Facts(collected=collected)
        own = (*ranks.evaluate(facts), *ranks.results(facts))
        passed = {finding.check for finding in own if finding.verdict is Verdict.PASS}
        found = evaluate_links(report.observations)
        every = (*own, *(f for f in found if f.verdict is not Verdict.PASS or f.check not in passed))
        if not any(finding.check == ranks.TRANSPORT for finding in found):  # by the rates
            every += tuple(ranks.transport(facts))
        findings, verdict, counts = conclude(every, source.read("nvml").gpus)
        return replace(report, findings=findings, verdict=verdict, counts=counts)

    return measure(source, options, judge, keep)


def evaluate_links(seen: Observations) -> tuple[Finding, ...]:
    return diagnose(seen) if seen.measured != Measured() else ()


def _cannot_fail(finding: Finding) -> Finding:
    """With other processes on the GPUs a rate is theirs as well, as a note of the report states; wrong data is not."""
    if finding.verdict is Verdict.FAIL and finding.check != DATA:
        return replace(finding, verdict=Verdict.WARN, confidence="possible")
    return finding
