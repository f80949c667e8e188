"""What is read of a host's report: the parts that hosts are compared by. The rest is passed over."""

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gpucheck.model import Finding, Partial, Simulation, System, TopologyGpu, Verdict
from gpucheck.model.compute import SCHEMA as COMPUTE_SCHEMA
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.finding import Value
from gpucheck.model.measurements import COMPUTE


class ComparedFinding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of any finding that is compared. Of a finding that is a problem everything is read."""

    check: str
    verdict: Verdict
    subject: str
    seen: Value = None
    unit: str | None = None
    because_of: str | None = None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a topology that is compared."""

    simulated: bool = False
    gpus: tuple[TopologyGpu, ...]


class HostReport(msgspec.Struct, frozen=True, kw_only=True, rename={"devices": "gpus"}):
    """The part of a report that is compared. Fields as in Report; of ``gpucheck compute`` as in ComputeReport."""

    schema: Literal["gpucheck.report/1", "gpucheck.compute/1"]
    host: str
    simulated: bool
    simulation: Simulation | None = None
    system: System | None = None
    started: str
    seconds: float
    versions: dict[str, str | None]
    verdict: Verdict
    findings: tuple[ComparedFinding, ...]
    measurements: dict[str, dict[str, Any]] = {}
    topology: Layout | None = None
    counts: dict[str, int]
    attributes: dict[str, tuple[str, ...]] = {}
    interrupted: bool = False
    partial: Partial | None = None
    not_proven: tuple[str, ...] = ()
    engine: str = ""
    devices: tuple[dict[str, Any], ...] = ()

    @property
    def gpus(self) -> tuple[TopologyGpu, ...]:
        return self.topology.gpus if self.topology else ()


class _Parts(msgspec.Struct):
    """What a report of a host always has, be it null or empty: a report without it is damaged."""

    system: msgspec.Raw
    measurements: msgspec.Raw
    topology: msgspec.Raw


class _Problems(msgspec.Struct):
    """All of the findings."""

    findings: tuple[Finding, ...]


_REPORT, _PROBLEMS = msgspec.json.Decoder(HostReport), msgspec.json.Decoder(_Problems)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError)


def read(document: bytes) -> HostReport:
    """Read the report of a host, or of ``gpucheck compute`` on it. Raises one of UNREADABLE."""
    found = _REPORT.decode(document)
    if found.schema != COMPUTE_SCHEMA:
        if not found.measurements or found.topology is None:
            msgspec.json.decode(document, type=_Parts)
        if found.system is None:
            raise ValueError("Object missing required field `system`")
        return found
    gpus = tuple(
        TopologyGpu(index=gpu.index, name=gpu.name, uuid=gpu.uuid, pci_bus_id=gpu.bus_id)
        for gpu in msgspec.convert(found.devices, tuple[ComputeDevice, ...])
        if gpu.is_gpu
    )
    numbers = [{"gpu": one["index"], **one} for one in found.devices]
    measured = {COMPUTE: {"engine": found.engine, "versions": found.versions, "gpus": numbers}}
    return replace(found, measurements=measured, topology=Layout(simulated=found.simulated, gpus=gpus))


def findings_of(document: bytes) -> tuple[Finding, ...]:
    """Read all of the findings of a report. Raises one of UNREADABLE."""
    return _PROBLEMS.decode(document).findings
