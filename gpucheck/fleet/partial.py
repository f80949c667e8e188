"""Reports of sessions with some GPUs of a host, as a step of Slurm or a container has: marked, and never the winner."""

from typing import Literal

from gpucheck.model import FleetProblem, FleetRow, worst


def about_share(row: FleetRow) -> list[FleetProblem]:
    """Name a host of which there is only such a report."""
    if not row.partial:
        return []
    text = f"{row.host}: its report covers {row.gpus or 'no GPU'}: run verify outside jobs and containers."
    return [FleetProblem(kind="partial", subject=row.host, text=text)]


def about_partial(other: FleetRow, winner: FleetRow, report: str) -> tuple[Literal["duplicate", "conflict"], str]:
    """Return the kind and text of a report that does not count. What it found later, or of other GPUs, is kept.

    report: its name, time and verdict. The start times of reports are ISO 8601 in UTC, so they compare as text.
    """
    others = not winner.partial or set(other.gpu_uuids) <= set(winner.gpu_uuids)
    old = others and (other.started or "") <= (winner.started or "")
    if old or worst([winner.verdict, other.verdict]) is winner.verdict:
        return "duplicate", f"{report} covers some GPUs only, and does not count."
    return "conflict", f"{report} covers some GPUs only, and is worse than {winner.source}. Run verify on the host."
