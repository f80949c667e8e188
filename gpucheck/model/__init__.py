"""The nouns. Everything else speaks in these; nothing here imports anything of ours outside this room."""

from gpucheck.model.check import AnyCheck, Check
from gpucheck.model.finding import Finding
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.model.hardware import (
    AcsControl,
    AerCounts,
    Expected,
    Fabric,
    Gpu,
    Nic,
    NvLink,
    Pair,
    PciDevice,
    PcieLink,
    TopologyGpu,
    narrowest_hop,
)
from gpucheck.model.health import EccCounts, GpuProcess, Health, PcieErrors, RetiredPages, RowRemap
from gpucheck.model.host import Host, NotRecorded
from gpucheck.model.readings import (
    DkmsModule,
    DriverState,
    InstalledKernel,
    KernelLine,
    KernelLog,
    Limits,
    LoaderLibrary,
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
    "AcsControl",
    "AerCounts",
    "AnyCheck",
    "Check",
    "DkmsModule",
    "DriverState",
    "EccCounts",
    "Expected",
    "Fabric",
    "Finding",
    "FleetReport",
    "FleetRow",
    "Gpu",
    "GpuProcess",
    "Health",
    "Host",
    "InstalledKernel",
    "KernelLine",
    "KernelLog",
    "Limits",
    "LoaderLibrary",
    "Nic",
    "NotRecorded",
    "NvLink",
    "NvmlFailure",
    "NvmlGap",
    "NvmlReading",
    "PackageVersion",
    "Pair",
    "PciDevice",
    "PcieErrors",
    "PcieLink",
    "Report",
    "RetiredPages",
    "RowRemap",
    "Simulation",
    "System",
    "Topology",
    "TopologyGpu",
    "Verdict",
    "narrowest_hop",
    "worst",
]
