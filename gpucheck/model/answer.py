"""What the answers of commands that measure or evaluate a host have in common."""

import msgspec

from gpucheck.model.finding import Finding, Verdict
from gpucheck.model.host.readings import Simulation


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
