"""Measure links and diagnose the measurements."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpucheck.diagnose import diagnose, doubtful
from gpucheck.model import Finding, Verdict
from gpucheck.model.diagnosis.observations import Measured, Observations
from gpucheck.model.facts import Source
from gpucheck.run.conclusion import conclude

if TYPE_CHECKING:
    from gpucheck.measure.bandwidth import BandwidthOptions, Watch
    from gpucheck.measure.collectives.run import CollectiveOptions
    from gpucheck.model.bandwidth import BandwidthReport
    from gpucheck.model.collectives import CollectivesReport

# What fails however busy the GPUs were.
DATA = "p2p-integrity"


def bandwidth(source: Source, options: "BandwidthOptions", watch: "Watch | None" = None) -> "BandwidthReport":
    """Measure and diagnose copies between the GPUs of this host; low pairs are measured again alone.

    watch.keep gets a report with its diagnosis too.
    Raises gpucheck.measure.planning.selection.Unmeasurable when there is nothing to measure, or not as asked.
    """

    def judge(report: "BandwidthReport") -> "BandwidthReport":
        return evaluated(report, contended=options.contended)

    if watch is not None and (keep := watch.keep) is not None:
        watch = watch._replace(keep=lambda report: keep(judge(report)))
    return judge(measured(source, options, watch))


def measured(source: Source, options: "BandwidthOptions", watch: "Watch | None" = None) -> "BandwidthReport":
    """Measure without a diagnosis: the findings list only what could not be measured. Raises Unmeasurable."""
    from gpucheck.measure.bandwidth import Watch, measure

    return measure(source, options, watch or Watch(), doubtful)


def evaluated(report: "BandwidthReport", *, contended: bool = False) -> "BandwidthReport":
    """Return a measured report with its diagnosis. contended: GPUs in use were measured as well."""
    found = evaluate_links(report.observations)
    if contended and any(note.startswith("contended") for note in report.notes):
        found = tuple(_cannot_fail(finding) for finding in found)
    findings, verdict, counts = conclude((*report.findings, *found), report.devices)
    return replace(report, findings=findings, verdict=verdict, counts=counts)


def collectives(
    source: Source, options: "CollectiveOptions", keep: "Callable[[CollectivesReport], None] | None" = None
) -> "CollectivesReport":
    """Measure and diagnose collectives between ranks. Raises Unmeasurable if the request cannot be met.

    keep: as of gpucheck.measure.bandwidth.Watch.
    """
    from gpucheck.measure.collectives.run import measure

    def judge(report: "CollectivesReport") -> "CollectivesReport":
        passed = {finding.check for finding in report.findings if finding.verdict is Verdict.PASS}
        found = evaluate_links(report.observations)
        every = (*report.findings, *(f for f in found if f.verdict is not Verdict.PASS or f.check not in passed))
        findings, verdict, counts = conclude(every, source.read("nvml").gpus)
        return replace(report, findings=findings, verdict=verdict, counts=counts)

    return judge(measure(source, options, keep and (lambda report: keep(judge(report)))))


def evaluate_links(seen: Observations) -> tuple[Finding, ...]:
    return diagnose(seen) if seen.measured != Measured() else ()


def _cannot_fail(finding: Finding) -> Finding:
    """With other processes on the GPUs a rate is theirs as well, as a note of the report states; wrong data is not."""
    if finding.verdict is Verdict.FAIL and finding.check != DATA:
        return replace(finding, verdict=Verdict.WARN, confidence="possible")
    return finding
