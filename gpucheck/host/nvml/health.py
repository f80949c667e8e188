"""The part of a pass over NVML that asks how a GPU is: errors, heat, power, modes, users.

Apart from what the GPU is, because a topology does not need it and it is most of the calls.

Structures and values: NVIDIA nvml.h (API 13).
"""

from collections.abc import Callable
from ctypes import byref
from typing import Any, Literal

import pynvml

from gpucheck.host.nvml.calls import Calls, plain
from gpucheck.model import (
    C2cLink,
    Confidential,
    EccCounts,
    GpuProcess,
    Health,
    PcieErrors,
    RackPlace,
    RetiredPages,
    RowRemap,
    SpareRows,
    SramErrors,
)

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
REPAIRS = ("channel", "TPC")
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
    repairs = query("nvmlDeviceGetRepairStatus")
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
        repairs_pending=None if repairs is None else tuple(n for n, on in zip(REPAIRS, repairs, strict=True) if on),
        unrepairable=_on(query("nvmlDeviceGetUnrepairableMemoryFlag_v1")),
        inforom_valid=_inforom(calls, subject, handle),
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
        power_enforced_w=_watts(query("nvmlDeviceGetEnforcedPowerLimit")),
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


def _inforom(calls: Calls, subject: str, handle: Any) -> bool | None:
    """Return whether the infoROM has its checksum: the return code is the answer."""
    _, refusal = calls.attempt("nvmlDeviceValidateInforom", subject, handle)
    if refusal is not None and refusal.code != pynvml.NVML_ERROR_CORRUPTED_INFOROM:
        calls.gaps.append(refusal)
        return None
    return refusal is None


def _on(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _two(values: Any) -> tuple[bool | None, bool | None]:
    return (None, None) if values is None else (bool(values[0]), bool(values[1]))


VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
BANDWIDTH = {0: "full", 1: "off", 2: "minimum", 3: "half", 4: "three quarters"}
BEST = "full"
C2C_LINKS, MOST_C2C_LINKS = "NVML_FI_DEV_C2C_LINK_COUNT", 32
C2C_FIELDS = tuple(
    f"NVML_FI_DEV_C2C_LINK_{name}"
    for name in ("GET_STATUS", "GET_MAX_BW", "ERROR_INTR", "ERROR_REPLAY", "ERROR_REPLAY_B2B", "POWER_STATE")
)


def filled(query: Query, call: str, structure: str) -> Any:
    """Return the structure that a call fills, by the binding's name for it; None, and a gap, without an answer.

    An older binding has neither the structure nor the call.
    """
    info = getattr(pynvml, structure, lambda: None)()
    return None if query(call, None if info is None else byref(info)) is None else info


def sram_errors(query: Query) -> SramErrors | None:
    """Return the counters of the SRAM, from Ampere on."""
    seen = filled(query, "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    if seen is None:
        return None
    return SramErrors(
        volatile_corrected=seen.volatileCor,
        volatile_parity=seen.volatileUncParity,
        volatile_sec_ded=seen.volatileUncSecDed,
        aggregate_corrected=seen.aggregateCor,
        aggregate_parity=seen.aggregateUncParity,
        aggregate_sec_ded=seen.aggregateUncSecDed,
        threshold_exceeded=bool(seen.bThresholdExceeded),
    )


def spare_rows(query: Query) -> SpareRows | None:
    """Return how many banks have how many of their spare rows left."""
    seen = query("nvmlDeviceGetRowRemapperHistogram")
    if seen is None:
        return None
    return SpareRows(every=seen.max, most=seen.high, some=seen.partial, few=seen.low, none=seen.none)


def rack_place(query: Query) -> RackPlace | None:
    """Return where in a rack the GPU is, which only compute trays report."""
    seen = filled(query, "nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v2_t")
    if seen is None:
        return None
    raw, start = bytes(seen), type(seen).slotNumber.offset
    chassis = type(seen).chassisSerialNumber.offset
    serial = plain(raw[chassis : chassis + 16].split(b"\0")[0]).strip()
    slot, tray, host, _, module = raw[start : start + 5]
    return RackPlace(chassis_serial=serial or None, slot=slot, tray=tray, host_id=host, module_id=module)


def licensed(query: Query, virtualization: str | None) -> bool | None:
    """Return whether a virtual GPU has its license; None for other GPUs, and where nothing needs one."""
    seen = query("nvmlDeviceGetGridLicensableFeatures") if virtualization == "vgpu" else None
    if seen is None or not seen.isGridLicenseSupported:
        return None
    count = min(seen.licensableFeaturesCount, len(seen.gridLicensableFeatures))
    return any(seen.gridLicensableFeatures[number].featureState for number in range(count))


def gsp_firmware(query: Query) -> str | None:
    """Return the version of the firmware of the GPU System Processor, ``off`` where the driver does not use it."""
    mode = query("nvmlDeviceGetGspFirmwareMode")
    version = query("nvmlDeviceGetGspFirmwareVersion")
    if mode is None or not mode[0]:
        return None if mode is None else "off"
    return None if version is None else plain(version).strip() or None


def nvlink_bandwidth(calls: Calls, query: Query, subject: str) -> str | None:
    """Return the NVLink bandwidth mode: of the GPU from Blackwell on, before it one of the system."""
    own, refusal = calls.attempt("nvmlSystemGetNvlinkBwMode", subject)
    if refusal is None:
        return BANDWIDTH.get(own, f"unknown-{own}")
    seen = filled(query, "nvmlDeviceGetNvlinkBwMode", "c_nvmlNvlinkGetBwMode_v1_t")
    return None if seen is None else BEST if seen.bIsBest else f"reduced ({seen.bwMode})"


def c2c_links(calls: Calls, subject: str, handle: Any, count: int | None) -> tuple[C2cLink, ...]:
    """Return the links to the Grace CPU; count: field C2C_LINKS, None or 0 without them."""
    links = []
    for number in range(min(count or 0, MOST_C2C_LINKS)):
        values = calls.fields(subject, handle, C2C_FIELDS, number)
        active, speed, interrupts, replays, in_a_row, power = (values[name] for name in C2C_FIELDS)
        links.append(
            C2cLink(
                link=number,
                active=None if active is None else active == 1,
                speed_mb_s=speed,
                interrupts=interrupts,
                replays=replays,
                replays_in_a_row=in_a_row,
                low_power=None if power is None else power == 1,
            )
        )
    return tuple(links)


def confidential(calls: Calls, subject: str) -> Confidential | None:
    """Return the state of confidential computing; None where the driver or the GPUs have none."""
    state, _ = calls.attempt("nvmlSystemGetConfComputeState", subject)
    if state is None:
        return None
    ready, _ = calls.attempt("nvmlSystemGetConfComputeGpusReadyState", subject) if state.ccFeature else (None, None)
    return Confidential(enabled=bool(state.ccFeature), ready=None if ready is None else bool(ready))
