"""What the service of a GPU asks for first: its SRAM, its spare rows, its place in a rack, license and firmware.

Structures and values: NVIDIA nvml.h (API 13).
"""

from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.notation import plain
from gpucheck.model import C2cLink, Confidential, RackPlace, SpareRows, SramErrors

Query = Callable[..., Any]
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
