"""What a report stores of each GPU and port, so that a later report can show what changed."""

import msgspec

from gpucheck.model.host.hardware import AerCounts, PcieLink
from gpucheck.model.host.health import EccCounts, GpuProcess, PcieErrors, RetiredPages, RowRemap

RECORD = "gpu-health"
"""The step that takes the record, and its place in a report's measurements."""


class LinkRecord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One NVLink port, in JSON a list: eight GPUs have 144. Errors are counted since the driver was loaded, None if not
    reported.
    """

    link: int
    active: bool
    replay_errors: int | None = None
    recovery_errors: int | None = None
    crc_errors: int | None = None


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU: what it is, how it is set, its counters, and its state at that moment. Fields as in Gpu and Health."""

    bus_id: str
    uuid: str
    name: str
    device_id: str
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    serial: str | None = None
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    ecc: bool | None = None
    power_limit_w: float | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    pcie: PcieLink = PcieLink()
    pcie_errors: PcieErrors = PcieErrors()
    ecc_errors: EccCounts = EccCounts()
    row_remap: RowRemap | None = None
    retired_pages: RetiredPages | None = None
    nvlinks: tuple[LinkRecord, ...] = ()

    @property
    def active_nvlinks(self) -> int:
        return sum(link.active for link in self.nvlinks)


class PortRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU's own PCI function, or a bridge above one. aer: since boot, None where the kernel does not count."""

    bus_id: str
    link: PcieLink = PcieLink()
    aer: AerCounts | None = None


class HealthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``measurements["gpu-health"]`` of a report. uptime_hours: since boot, None if unknown.

    module_flavour: of the loaded kernel module, ``open`` or ``proprietary``.
    """

    uptime_hours: float | None = None
    module_flavour: str | None = None
    gpus: tuple[GpuRecord, ...] = ()
    ports: tuple[PortRecord, ...] = ()
