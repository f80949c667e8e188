"""The nouns. Everything else speaks in these; nothing here imports anything of ours outside this room."""

from gpucheck.model.check import AnyCheck, Check
from gpucheck.model.finding import Finding
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.model.hardware import (
    Expected,
    Fabric,
    Gpu,
    Nic,
    NvLink,
    Pair,
    PciDevice,
    PcieLink,
    TopologyGpu,
)
from gpucheck.model.host import Host
from gpucheck.model.readings import (
    DriverState,
    NvmlFailure,
    NvmlGap,
    NvmlReading,
    PackageVersion,
    Simulation,
    System,
)
from gpucheck.model.report import Report
from gpucheck.model.topology import Topology
from gpucheck.model.verdict import EXIT_INTERRUPTED, EXIT_STATUS, EXIT_USAGE, Verdict, worst

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_STATUS",
    "EXIT_USAGE",
    "AnyCheck",
    "Check",
    "DriverState",
    "Expected",
    "Fabric",
    "Finding",
    "FleetReport",
    "FleetRow",
    "Gpu",
    "Host",
    "Nic",
    "NvLink",
    "NvmlFailure",
    "NvmlGap",
    "NvmlReading",
    "PackageVersion",
    "Pair",
    "PciDevice",
    "PcieLink",
    "Report",
    "Simulation",
    "System",
    "Topology",
    "TopologyGpu",
    "Verdict",
    "worst",
]
