"""The report of one host: the outside contract of ``gpucheck verify``, and the unit a fleet is merged from."""

from typing import Any

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.model.host.readings import Simulation, System
from gpucheck.model.topology import Topology

SCHEMA = "gpucheck.report/1"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck verify --format json``.

    started: UTC, ISO 8601. versions: what is installed and active, by component.
    measurements: by check name, numbers with their unit in the key.
    counts: findings by verdict, every verdict present.
    not_proven: what the level includes and this run did not show, each with the reason.
    attributes: what this host may have in common with others of its fleet, by name: ``bios``, ``vbios``, ``uplink``...
    interrupted: a signal ended the run; the findings are those of the steps before it, and one UNKNOWN names the rest.
    """

    schema: str = SCHEMA
    host: str
    simulated: bool
    simulation: Simulation | None = None
    system: System
    started: str
    seconds: float
    versions: dict[str, str | None]
    verdict: Verdict
    findings: tuple[Finding, ...]
    measurements: dict[str, dict[str, Any]]
    topology: Topology | None
    counts: dict[str, int]
    not_proven: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    interrupted: bool = False
