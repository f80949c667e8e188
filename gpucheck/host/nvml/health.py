"""The part of a pass over NVML that asks how a GPU is: errors, heat, power, modes, users.

Apart from what the GPU is, because a topology does not need it and it is most of the calls.
"""

from collections.abc import Callable
from typing import Any, Literal

import pynvml

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.notation import plain
from gpucheck.host.nvml.signals import (
    C2C_LINKS,
    VIRTUALIZATION,
    c2c_links,
    gsp_firmware,
    licensed,
    nvlink_bandwidth,
    rack_place,
    spare_rows,
    sram_errors,
)
from gpucheck.model import EccCounts, GpuProcess, Health, PcieErrors, RetiredPages, RowRemap

# nvmlClocksEventReason*, by bit
CLOCKS_EVENT_REASONS = (
    "idle",
    "app-clocks",
    "sw-power-cap",
    "hw-slowdown",
    "sync-boost",
    "sw-thermal",
    "hw-thermal",
    "hw-power-brake",
    "display-clocks",
)
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex",
    6: "bus-reset",
    7: "system-reboot",
}
# The second name is that of drivers before 535.
REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
ADDRESSING_MODES = {0: "none", 1: "hmm", 2: "ats"}
THRESHOLD, MARGIN = "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetMarginTemperature"
SLOWDOWN_MARGIN = "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT"
LINK_RECOVERIES = "NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER"
RECOVERY_ACTION = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
PCIE_FIELDS = tuple(
    f"NVML_FI_DEV_PCIE_COUNT_{kind}" for kind in ("CORRECTABLE_ERRORS", "NON_FATAL_ERROR", "FATAL_ERROR")
)
Query = Callable[..., Any]


def read_health(calls: Calls, subject: str, handle: Any, memory_used: int | None) -> Health:
    """Make every call by itself: one that fails is a gap and costs only its own value."""

    def query(call: str, *arguments: Any) -> Any:
        return calls.query(call, subject, handle, *arguments)

    fields = calls.fields(subject, handle, (*PCIE_FIELDS, LINK_RECOVERIES, RECOVERY_ACTION, C2C_LINKS, SLOWDOWN_MARGIN))
    correctable, non_fatal, fatal = (fields[name] for name in PCIE_FIELDS)
    serial, vbios = query("nvmlDeviceGetSerial"), query("nvmlDeviceGetVbiosVersion")
    mig, mig_pending = _two(query("nvmlDeviceGetMigMode"))
    ecc, ecc_pending = _two(query("nvmlDeviceGetEccMode"))
    least, most = query("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    utilization = query("nvmlDeviceGetUtilizationRates")
    celsius = query("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
    virtualization = _named(VIRTUALIZATION, query("nvmlDeviceGetVirtualizationMode"))
    return Health(
        serial=None if serial is None else plain(serial),
        vbios=None if vbios is None else plain(vbios),
        persistence=_on(query("nvmlDeviceGetPersistenceMode")),
        compute_mode=_named(COMPUTE_MODES, query("nvmlDeviceGetComputeMode")),
        mig=mig,
        mig_pending=mig_pending,
        ecc=ecc,
        ecc_pending=ecc_pending,
        ecc_counts=_ecc_counts(query),
        row_remap=_row_remap(query("nvmlDeviceGetRemappedRows")),
        spare_rows=spare_rows(query),
        sram=sram_errors(query),
        retired_pages=_retired_pages(query),
        pcie_errors=PcieErrors(
            replays=query("nvmlDeviceGetPcieReplayCounter"),
            correctable=correctable,
            non_fatal=non_fatal,
            fatal=fatal,
            recoveries=fields[LINK_RECOVERIES],
        ),
        recovery_action=_named(RECOVERY_ACTIONS, fields[RECOVERY_ACTION]),
        clocks_event_reasons=named_reasons(calls.newest(subject, *((call, handle) for call in REASON_CALLS))),
        memory_used_bytes=memory_used,
        gpu_utilization_percent=None if utilization is None else utilization.gpu,
        addressing_mode=_named(ADDRESSING_MODES, query("nvmlDeviceGetAddressingMode")),
        processes=_processes(calls, subject, handle),
        rack=rack_place(query),
        virtualization=virtualization,
        licensed=licensed(query, virtualization),
        gsp_firmware=gsp_firmware(query),
        nvlink_bandwidth=nvlink_bandwidth(calls, query, subject),
        c2c=c2c_links(calls, subject, handle, fields[C2C_LINKS]),
        temperature_c=celsius,
        temperature_slowdown_c=query(THRESHOLD, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        temperature_shutdown_c=query(THRESHOLD, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        temperature_margin_c=margin_c(query, celsius, fields[SLOWDOWN_MARGIN]),
        power_w=_watts(query("nvmlDeviceGetPowerUsage")),
        power_limit_w=_watts(query("nvmlDeviceGetPowerManagementLimit")),
        power_default_w=_watts(query("nvmlDeviceGetPowerManagementDefaultLimit")),
        power_min_w=_watts(least),
        power_max_w=_watts(most),
        sm_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=query("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
        application_clock_mhz=query("nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_GRAPHICS),
        default_application_clock_mhz=query("nvmlDeviceGetDefaultApplicationsClock", pynvml.NVML_CLOCK_GRAPHICS),
    )


def margin_c(query: Query, celsius: int | None, slowdown: int | None) -> int | None:
    """Return the degrees that are left until the hardware slows the GPU down, 0 or less from there on; None if unknown.

    query: makes a call about one GPU, as (call, *arguments). celsius: its temperature now. slowdown: its field
    SLOWDOWN_MARGIN. Ada and newer report a margin and may not report the limit, older boards report only the limit
    (NVIDIA nvml.h, API 13). The margin counts to the highest operating temperature, where software may begin to lower
    clocks; the hardware does so at the slowdown margin, such as -2 (nvidia-smi manual; NVSentinel ADR-042). Without it
    the margin itself is the most that is known to be left.
    """
    margin: int | None = query(MARGIN)
    if margin is not None:
        return margin - min(0, signed(slowdown or 0))
    limit: int | None = query(THRESHOLD, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return limit - celsius if limit and celsius is not None else None


def signed(value: int) -> int:
    """Return a number of 32 bits whose answer has a type without a sign."""
    return value - (1 << 32) if value >= 1 << 31 else value


def _ecc_counts(query: Query) -> EccCounts:
    def total(error: int, counter: int) -> int | None:
        count: int | None = query("nvmlDeviceGetTotalEccErrors", error, counter)
        return count

    corrected, uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC
    return EccCounts(
        volatile_corrected=total(corrected, volatile),
        volatile_uncorrected=total(uncorrected, volatile),
        aggregate_corrected=total(corrected, aggregate),
        aggregate_uncorrected=total(uncorrected, aggregate),
    )


def _row_remap(values: Any) -> RowRemap | None:
    if values is None:
        return None
    corrected, uncorrected, pending, failed = values
    return RowRemap(corrected=corrected, uncorrected=uncorrected, pending=bool(pending), failed=bool(failed))


def _retired_pages(query: Query) -> RetiredPages | None:
    """Return all three values or none: Ampere and newer remap rows instead and reject the calls."""
    pending = query("nvmlDeviceGetRetiredPagesPendingStatus")
    if pending is None:
        return None
    single = query("nvmlDeviceGetRetiredPages", pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
    double = query("nvmlDeviceGetRetiredPages", pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
    if single is None or double is None:
        return None
    return RetiredPages(single_bit=len(single), double_bit=len(double), pending=bool(pending))


def _processes(calls: Calls, subject: str, handle: Any) -> tuple[GpuProcess, ...] | None:
    """Both lists or none: half of the users would read as all of them."""
    found: list[GpuProcess] = []
    kinds: tuple[tuple[Literal["compute", "graphics"], str], ...] = (
        ("compute", "nvmlDeviceGetComputeRunningProcesses"),
        ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    )
    for kind, call in kinds:
        # The binding's own is _v3, of driver 510; 470 has _v2 and those before have the first.
        listed = calls.newest(subject, *((f"{call}{version}", handle) for version in ("", "_v2", "_v1")))
        if listed is None:
            return None
        for process in listed:
            name = calls.query("nvmlSystemGetProcessName", f"process:{process.pid}", process.pid)
            found.append(
                GpuProcess(
                    pid=process.pid,
                    kind=kind,
                    memory_bytes=process.usedGpuMemory,
                    name=None if name is None else plain(name),
                )
            )
    return tuple(found)


def named_reasons(mask: int | None) -> tuple[str, ...] | None:
    """Return the names of nvmlClocksEventReasons bits; a bit without a name by its value."""
    if mask is None:
        return None
    known = [name for bit, name in enumerate(CLOCKS_EVENT_REASONS) if mask >> bit & 1]
    rest = mask >> len(CLOCKS_EVENT_REASONS) << len(CLOCKS_EVENT_REASONS)
    return (*known, hex(rest)) if rest else tuple(known)


def _named(names: dict[int, str], number: int | None) -> str | None:
    return None if number is None else names.get(number, f"unknown-{number}")


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _on(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _two(values: Any) -> tuple[bool | None, bool | None]:
    return (None, None) if values is None else (bool(values[0]), bool(values[1]))
