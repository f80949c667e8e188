"""The nouns. Everything else speaks in these; nothing here imports anything of ours outside this room."""

from gpucheck.model.advice import Advice, Choice, Pinning
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
from gpucheck.model.wiring import NVSWITCH, NumaNode, NvLinkBundle, WiredFunction, Wiring

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_STATUS",
    "EXIT_USAGE",
    "NVSWITCH",
    "AcsControl",
    "Advice",
    "AerCounts",
    "AnyCheck",
    "Check",
    "Choice",
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
    "NumaNode",
    "NvLink",
    "NvLinkBundle",
    "NvmlFailure",
    "NvmlGap",
    "NvmlReading",
    "PackageVersion",
    "Pair",
    "PciDevice",
    "PcieErrors",
    "PcieLink",
    "Pinning",
    "Report",
    "RetiredPages",
    "RowRemap",
    "Simulation",
    "System",
    "Topology",
    "TopologyGpu",
    "Verdict",
    "WiredFunction",
    "Wiring",
    "narrowest_hop",
    "worst",
]
