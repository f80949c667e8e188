"""Data types that all packages share: GPU, link, topology, observation, finding, verdict, report.

Imported on first use: the child that asks NVML needs few of them, and importing all would be a third of its time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpucheck.model.facts import Check
    from gpucheck.model.finding import (
        EXIT_STATUS,
        Finding,
        Verdict,
        by_root,
        counted,
        follows,
        named,
        where,
        worst,
    )
    from gpucheck.model.host import NotRecorded
    from gpucheck.model.host.hardware import (
        AcsControl,
        AerCounts,
        C2cLink,
        Confidential,
        EccCounts,
        Fabric,
        Gpu,
        GpuProcess,
        Health,
        NvLink,
        NvLink5Counts,
        PciDevice,
        PcieErrors,
        PcieLink,
        RackPlace,
        RetiredPages,
        RowRemap,
        SpareRows,
        SramErrors,
    )
    from gpucheck.model.host.readings import (
        CRASHED,
        DEFECT,
        DEPRECATED,
        LATE,
        NOT_IN_LIBRARY,
        NOT_STARTED,
        NOT_SUPPORTED,
        DeviceFile,
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
    from gpucheck.model.host.wiring import (
        NVSWITCH,
        Expected,
        Nic,
        NvLinkBundle,
        Pair,
        TopologyGpu,
        WiredFunction,
        Wiring,
    )
    from gpucheck.model.record import Partial, Report
    from gpucheck.model.topology import Advice, Topology

# Each is searched for in these, those that import least first.
MODULES = ("host.hardware", "host.readings", "host", "finding", "host.wiring", "topology", "facts", "record")


def __getattr__(name: str) -> Any:
    for module in () if name.startswith("__") else MODULES:
        found = vars(import_module(f"{__name__}.{module}"))
        if name in found:
            globals()[name] = found[name]  # without a second search
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
