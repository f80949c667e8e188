"""What the answers of commands that measure or evaluate a host have in common."""

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from gpucheck.model.finding import Finding, Verdict, counted, worst
from gpucheck.model.host.readings import Simulation

if TYPE_CHECKING:
    from gpucheck.model.facts import Facts


def timestamp(started: str | None) -> float | None:
    """Return the seconds since 1970 of a date in ISO 8601, None if it is not one. Without a zone it is UTC."""
    try:
        at = datetime.fromisoformat((started or "").replace("Z", "+00:00"))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One run. started: UTC, ISO 8601. counts: findings by verdict, every verdict present."""

    schema: str
    host: str
    simulated: bool
    simulation: Simulation | None = None
    started: str
    seconds: float
    verdict: Verdict
    findings: tuple[Finding, ...]
    counts: dict[str, int]


class Clock:
    """The time of a run, from now on."""

    def __init__(self) -> None:
        self._started, self._clock = datetime.now(timezone.utc), time.monotonic()

    def answer(self, facts: "Facts", findings: tuple[Finding, ...]) -> dict[str, Any]:
        """Return the fields that every Answer has, but the schema. facts: with system and simulation."""
        return {
            "host": facts.system.hostname,
            "simulated": facts.simulation is not None,
            "simulation": facts.simulation,
            "started": self._started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._clock, 3),
            "verdict": worst(finding.verdict for finding in findings),
            "findings": findings,
            "counts": counted(findings),
        }
