"""A verdict is never better than its evidence: what a report concludes is compared with what it lists."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpucheck.fleet.remedies import DISTRUST
from gpucheck.model import Finding, FleetRow, Report, Verdict, counted, worst

WHY = "a report that contradicts itself was damaged or changed after it was made"


def is_simulated(report: Report) -> bool:
    """Return whether any part of the report is marked as simulated: a simulated result must never look real."""
    return any(_simulated(report))


def contradictions(report: Report) -> list[str]:
    """Return what in the report cannot be true together, each as the end of a sentence."""
    verdicts = [finding.verdict for finding in report.findings]
    listed = {Verdict(name): count for name, count in counted(report.findings).items()}
    found = []
    if report.verdict not in (worst(verdicts), worst(verdicts, strict=True)):
        found.append(f"its verdict is {report.verdict.name}, and its findings are {_counted(listed)}")
    if any(report.counts.get(verdict.value, 0) != count for verdict, count in listed.items()):
        counts = {verdict: report.counts.get(verdict.value, 0) for verdict in Verdict}
        found.append(f"it counts {_counted(counts)}, and its findings are {_counted(listed)}")
    if report.interrupted and Verdict.UNKNOWN not in verdicts:
        found.append("it was interrupted, and no finding is UNKNOWN")
    if len(set(_simulated(report))) > 1:
        found.append("its parts contradict each other about whether the hardware is simulated")
    return found


def doubted(row: FleetRow, found: Sequence[str]) -> FleetRow:
    """Return the row as it is, or UNKNOWN at best with a problem that names each contradiction."""
    if not found:
        return row
    seen = f"{row.source or row.host}: {'; '.join(found)}"
    doubt = Finding(check="report", verdict=Verdict.UNKNOWN, subject="host", seen=seen, why=WHY, fix=DISTRUST)
    problems = (*row.problems, doubt)
    verdict = worst([row.verdict, *(finding.verdict for finding in problems)])
    return replace(row, verdict=verdict, problems=problems)


def _simulated(report: Report) -> list[bool]:
    parts = [report.simulated, report.simulation is not None]
    return parts if report.topology is None else [*parts, report.topology.simulated]


def _counted(counts: dict[Verdict, int]) -> str:
    return ", ".join(f"{count} {verdict.name}" for verdict, count in counts.items() if count) or "none"
