"""A verdict is never better than its evidence: what a report concludes is compared with what it lists."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpucheck.fleet.identity import MAX_HOST_NAME
from gpucheck.fleet.remedies import DISTRUST, advised
from gpucheck.model import Finding, FleetRow, Report, Verdict, counted, worst
from gpucheck.model.finding.verdict import RANK

WHY = "a report that contradicts itself was damaged or changed after it was made"
# Counts of a row other than passes; each is as good as a finding of that verdict.
COUNTED = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)


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


def checked(row: FleetRow) -> FleetRow:
    """Return a row that another reader made, never better than its own problems and counts.

    Raises ValueError for a row whose host has no name.
    """
    if not 0 < len(row.host) <= MAX_HOST_NAME:
        raise ValueError(f"the host name has {len(row.host)} characters")
    row = replace(row, problems=tuple(advised(_untrusted(finding)) for finding in row.problems))
    floor = [finding.verdict for finding in row.problems]
    floor += [verdict for verdict in COUNTED if row.counts.get(verdict.value, 0) > 0]
    if row.digest is None:
        floor.append(Verdict.UNKNOWN)
    allowed = max(RANK.index(worst(floor)), RANK.index(worst(floor, strict=True)))
    found = []
    if row.verdict not in RANK or RANK.index(row.verdict) > allowed:
        found.append(f"its verdict is {row.verdict.name}, and its findings are at best {RANK[allowed].name}")
    if row.simulation is not None and not row.simulated:
        found.append("its parts contradict each other about whether the hardware is simulated")
    simulated = row.simulated or row.simulation is not None
    return doubted(replace(row, simulated=simulated), found, floor)


def doubted(row: FleetRow, found: Sequence[str], floor: Sequence[Verdict] = ()) -> FleetRow:
    """Return the row as it is, or UNKNOWN at best with a problem that names each contradiction."""
    if not found:
        return row
    seen = f"{row.source or row.host}: {'; '.join(found)}"
    doubt = Finding(check="report", verdict=Verdict.UNKNOWN, subject="host", seen=seen, why=WHY, fix=DISTRUST)
    problems = (*row.problems, doubt)
    verdict = worst([row.verdict, *floor, *(finding.verdict for finding in problems)])
    return replace(row, verdict=verdict, problems=problems)


def _untrusted(finding: Finding) -> Finding:
    """The merge's own findings are made after shards are read, so none comes from one."""
    return replace(finding, check="host's fleet") if finding.check == "fleet" else finding


def _simulated(report: Report) -> list[bool]:
    parts = [report.simulated, report.simulation is not None]
    return parts if report.topology is None else [*parts, report.topology.simulated]


def _counted(counts: dict[Verdict, int]) -> str:
    return ", ".join(f"{count} {verdict.name}" for verdict, count in counts.items() if count) or "none"
