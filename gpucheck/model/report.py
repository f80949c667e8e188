"""The report of one host: the outside contract of ``gpucheck verify``, and the unit a fleet is merged from."""

from typing import Any, Literal

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.model.host.readings import Simulation, System
from gpucheck.model.topology import Topology

SCHEMA = "gpucheck.report/1"


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """Set if this session may use some of the GPUs of the host only. usable, hidden: their bus ids.

    by: what hides the others: a ``device-cgroup`` (a step of Slurm, a unit of systemd) or a ``container``.
    """

    usable: tuple[str, ...]
    hidden: tuple[str, ...]
    by: Literal["device-cgroup", "container"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck verify --format json``.

    started: UTC, ISO 8601. versions: what is installed and active, by component.
    measurements: by check name, numbers with their unit in the key.
    counts: findings by verdict, every verdict present.
    not_proven: what the level includes and this run did not show, each with the reason.
    attributes: what this host may have in common with others of its fleet, by name: ``bios``, ``vbios``, ``uplink``...
    partial: the report is that of a session with some of the GPUs, and states nothing about the others.
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
    partial: Partial | None = None
