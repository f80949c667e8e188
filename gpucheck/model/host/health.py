"""GPU health readings: memory errors, heat, power, modes, processes. None means not reported by NVML, never zero."""

from typing import Literal

import msgspec


class EccCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """ECC errors. volatile: since the driver was loaded. aggregate: over the life of the board."""

    volatile_corrected: int | None = None
    volatile_uncorrected: int | None = None
    aggregate_corrected: int | None = None
    aggregate_uncorrected: int | None = None


class RowRemap(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRemappedRows (Ampere and newer): rows remapped, and whether one waits for a reset or failed."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


class SramErrors(msgspec.Struct, frozen=True, kw_only=True):
    """ECC errors of caches and registers, nvmlDeviceGetSramEccErrorStatus. parity and sec_ded: could not be corrected.

    threshold_exceeded: the driver's own verdict that the board needs service.
    """

    volatile_corrected: int
    volatile_parity: int
    volatile_sec_ded: int
    aggregate_corrected: int
    aggregate_parity: int
    aggregate_sec_ded: int
    threshold_exceeded: bool

    @property
    def volatile_uncorrected(self) -> int:
        """Since the driver was loaded."""
        return self.volatile_parity + self.volatile_sec_ded

    @property
    def aggregate_uncorrected(self) -> int:
        """Over the life of the board."""
        return self.aggregate_parity + self.aggregate_sec_ded


class SpareRows(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRowRemapperHistogram: banks of memory by what is left of their spare rows."""

    every: int
    most: int
    some: int
    few: int
    none: int


class RackPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in an NVLink rack a GPU is, nvmlDeviceGetPlatformInfo: the words by which an operator finds it."""

    chassis_serial: str | None
    slot: int
    tray: int
    host_id: int
    module_id: int


class C2cLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the NVLink-C2C between a GPU and its Grace CPU. Counters: since the driver was loaded.

    speed_mb_s: one way. replays_in_a_row: replays that followed one another.
    """

    link: int
    active: bool | None = None
    speed_mb_s: int | None = None
    interrupts: int | None = None
    replays: int | None = None
    replays_in_a_row: int | None = None
    low_power: bool | None = None


class Confidential(msgspec.Struct, frozen=True, kw_only=True):
    """Confidential computing. ready: whether the GPUs accept work, None where it is off or not reported."""

    enabled: bool
    ready: bool | None = None


class RetiredPages(msgspec.Struct, frozen=True, kw_only=True):
    """Page retirement (before Ampere): pages by cause, and whether some wait for a reset."""

    single_bit: int
    double_bit: int
    pending: bool


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds a context on the GPU."""

    pid: int
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None = None
    name: str | None = None


class PcieErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cumulative PCIe error counters of the GPU itself: evaluate differences, not values.

    recoveries: of the link, from its active state; changes of speed are among them (NVML field 169).
    """

    replays: int | None = None
    correctable: int | None = None
    non_fatal: int | None = None
    fatal: int | None = None
    recoveries: int | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one GPU as NVML reports it.

    serial, vbios: as printed on the board and in its firmware.
    clocks_event_reasons: why the clocks are held, by NVML's names in kebab case: ``idle app-clocks sw-power-cap
    hw-slowdown sync-boost sw-thermal hw-thermal hw-power-brake display-clocks``.
    temperature_c and its limits: the GPU core, in degrees Celsius; slowdown is where the hardware throttles.
    temperature_margin_c: degrees that are left until the hardware throttles, 0 or less from there on.
    power_*_w: watts. default is the factory's limit, min and max what may be set.
    sm_clock_mhz, max_sm_clock_mhz: now, and as far as the board can.
    compute_mode: ``default exclusive-thread prohibited exclusive-process``.
    mig, mig_pending: on or off now, and after the next reset; None where the GPU has no MIG.
    recovery_action: NVML field 230, ``none reset reboot drain-p2p drain-and-reset recover-imex bus-reset
    system-reboot``.
    A mode, action or reason that is newer than these names is reported by its number (``unknown-8``, ``0x400``).
    addressing_mode: ``hmm ats none``. virtualization: ``none passthrough vgpu host-vgpu host-vsga``.
    licensed: of a virtual GPU, None for others. gsp_firmware: its version, ``off`` where the driver does without.
    nvlink_bandwidth: the mode, ``full`` or what it was reduced to. c2c: empty for a GPU without NVLink-C2C.
    """

    serial: str | None = None
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_counts: EccCounts = EccCounts()
    row_remap: RowRemap | None = None
    spare_rows: SpareRows | None = None
    sram: SramErrors | None = None
    retired_pages: RetiredPages | None = None
    pcie_errors: PcieErrors = PcieErrors()
    recovery_action: str | None = None
    clocks_event_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_shutdown_c: int | None = None
    temperature_margin_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    memory_used_bytes: int | None = None
    gpu_utilization_percent: int | None = None
    addressing_mode: str | None = None
    processes: tuple[GpuProcess, ...] | None = None
    rack: RackPlace | None = None
    virtualization: str | None = None
    licensed: bool | None = None
    gsp_firmware: str | None = None
    nvlink_bandwidth: str | None = None
    c2c: tuple[C2cLink, ...] = ()

    @property
    def memory_used_mib(self) -> int | None:
        return None if self.memory_used_bytes is None else self.memory_used_bytes >> 20
