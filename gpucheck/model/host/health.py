"""GPU health readings: memory errors, heat, power, modes, processes. None means not reported by NVML, never zero."""

from typing import Literal

import msgspec


class EccCounts(msgspec.Struct, frozen=True, kw_only=True):
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


class PcieErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Cumulative PCIe error counters of the GPU itself: evaluate differences, not values."""

    replays: int | None = None
    correctable: int | None = None
    non_fatal: int | None = None
    fatal: int | None = None


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
    addressing_mode: ``hmm ats none``.
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
