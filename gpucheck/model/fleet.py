"""A fleet: one row a host. The outside contract of ``gpucheck fleet report``."""

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict

SCHEMA = "gpucheck.fleet/1"


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One host of the fleet.

    gpus: models with counts, in words. problems: what is not a pass, worst first.
    """

    host: str
    verdict: Verdict
    simulated: bool = False
    simulation: str | None = None
    system: str | None = None
    driver: str | None = None
    gpus: str | None = None
    training: str | None = None
    started: str | None = None
    seconds: float | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    problems: tuple[Finding, ...] = ()
    stand_ins: tuple[str, ...] = ()


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The merged report. counts: hosts by verdict."""

    schema: str = SCHEMA
    verdict: Verdict
    simulated: bool
    hosts: tuple[FleetRow, ...]
    counts: dict[str, int]
