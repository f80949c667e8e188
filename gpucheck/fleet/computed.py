"""A report of ``gpucheck compute``, such as of a burn-in, as that of a host: its GPUs, findings and numbers."""

from typing import Any

import msgspec

from gpucheck.model import Report, System, Topology, TopologyGpu
from gpucheck.model.compute import SCHEMA, ComputeReport

STEP = "compute"
_REPORT = msgspec.json.Decoder(ComputeReport)


def as_host_report(document: bytes) -> Report | None:
    """Return the report, None for a document that is not one of ``gpucheck compute``."""
    try:
        found = _REPORT.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    if found.schema != SCHEMA:
        return None
    # As read, like the measurements of a report: a list is a list.
    numbers: dict[str, Any] = msgspec.json.decode(document)
    gpus = [gpu for gpu in found.gpus if gpu.is_gpu]
    devices = [{"gpu": gpu["index"], **gpu} for gpu in numbers["gpus"]]
    nodes = tuple(TopologyGpu(index=g.index, name=g.name, uuid=g.uuid, pci_bus_id=g.bus_id) for g in gpus)
    return Report(
        host=found.host,
        simulated=found.simulated,
        simulation=found.simulation,
        system=System(hostname=found.host, os_id="", os_version="", os_name="", arch="", kernel=""),
        started=found.started,
        seconds=found.seconds,
        versions=found.versions,
        verdict=found.verdict,
        findings=found.findings,
        measurements={STEP: {"engine": found.engine, "versions": found.versions, "gpus": devices}},
        topology=Topology(simulated=found.simulated, source=STEP, gpus=nodes, matrix=()),
        counts=found.counts,
    )
