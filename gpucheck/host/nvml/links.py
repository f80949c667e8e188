"""NVLink ports and the fabric of one GPU, as NVML reports them."""

from ctypes import byref
from typing import Any, Literal
from uuid import UUID

import pynvml

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.notation import normal_bus_id, raw_text
from gpucheck.model import DEPRECATED, NOT_IN_LIBRARY, Fabric, NvLink, NvLink5Counts, NvmlGap

INVALID_ARGUMENT = 2  # past the last NVLink
GONE = (15, 16)  # GPU_IS_LOST, RESET_REQUIRED: the other links have no other answer
REMOTE: dict[int, Literal["gpu", "npu", "switch"]] = {0: "gpu", 1: "npu", 2: "switch"}
LinkState = Literal["inactive", "active", "asleep", "traffic-off"]
LINK_STATES: dict[int, LinkState] = {0: "inactive", 1: "active", 2: "asleep", 3: "traffic-off"}
FABRIC_STATES: dict[int, Literal["not-supported", "not-started", "in-progress", "completed"]] = {
    0: "not-supported",
    1: "not-started",
    2: "in-progress",
    3: "completed",
}
FABRIC_SUMMARIES: dict[int, Literal["healthy", "unhealthy", "limited-capacity"]] = {
    1: "healthy",
    2: "unhealthy",
    3: "limited-capacity",
}
# The newest first; only version 3 has the summary.
FABRIC_WAYS = (
    ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfoV_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
)
VERSION_MISMATCH = 25
STATE, REMOTE_LINK = "NVML_FI_DEV_NVLINK_GET_STATE", "NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID"
SPEED, COMMON_SPEED = "NVML_FI_DEV_NVLINK_GET_SPEED", "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON"
P2P_SUPPORTED = 0  # nvmlNvLinkCapability_t
# The first compute capability whose links have the field, and the first whose counters are those of NVLink 5.
HOPPER, BLACKWELL = 9, 10
REPLAYS, RECOVERIES, CRC = (f"NVML_FI_DEV_NVLINK_ERROR_DL_{kind}" for kind in ("REPLAY", "RECOVERY", "CRC"))
# The same counters for drivers that do not have the fields: nvmlNvLinkErrorCounter_t.
OLD_COUNTERS = {REPLAYS: 0, RECOVERIES: 1, CRC: 2}
NVLINK_5_COUNTERS = {
    f"NVML_FI_DEV_NVLINK_COUNT_{field}": name
    for field, name in {
        "MALFORMED_PACKET_ERRORS": "malformed_packets",
        "BUFFER_OVERRUN_ERRORS": "buffer_overruns",
        "RCV_ERRORS": "receive_errors",
        "RCV_REMOTE_ERRORS": "receive_remote_errors",
        "RCV_GENERAL_ERRORS": "receive_general_errors",
        "LOCAL_LINK_INTEGRITY_ERRORS": "integrity_errors",
        "XMIT_DISCARDS": "transmit_discards",
        "LINK_RECOVERY_SUCCESSFUL_EVENTS": "recoveries_succeeded",
        "LINK_RECOVERY_FAILED_EVENTS": "recoveries_failed",
        "LINK_RECOVERY_EVENTS": "recoveries",
        "EFFECTIVE_ERRORS": "effective_errors",
        "EFFECTIVE_BER": "effective_ber",
        "SYMBOL_ERRORS": "symbol_errors",
        "SYMBOL_BER": "symbol_ber",
    }.items()
}


def nvlinks(calls: Calls, bus_id: str, handle: Any, *, major: int | None, health: bool) -> tuple[NvLink, ...]:
    """Return every port up to the first that does not exist: the count differs by product, and no header has them all.

    major: of the compute capability. Failures for the first link are stored: no links is not zero links.
    """
    links: list[NvLink] = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        subject = f"link:{bus_id}/{number}"
        # The driver trains the links of a GPU that was not used yet when it is queried for their capabilities; NCCL
        # queries the same first (src/graph/xml.cc).
        _, refusal = calls.attempt("nvmlDeviceGetNvLinkCapability", subject, handle, number, P2P_SUPPORTED)
        if refusal is not None and refusal.code in GONE:
            calls.gaps.append(refusal)
        raw, refusal = calls.attempt("nvmlDeviceGetNvLinkState", subject, handle, number)
        if refusal is not None:
            there = not (refusal.absent or refusal.code == INVALID_ARGUMENT)
            if there or number == 0:
                calls.gaps.append(refusal)
            if there and refusal.code not in GONE:
                continue
            break
        state = LINK_STATES.get(raw)
        if major is not None and major >= HOPPER:
            reported = calls.fields(subject, handle, (STATE,), number)[STATE]
            state = state if reported is None else LINK_STATES.get(reported, state)
        links.append(_link(calls, subject, handle, number, state=state, major=major, health=health))
    return tuple(links)


def _link(
    calls: Calls, subject: str, handle: Any, number: int, *, state: LinkState | None, major: int | None, health: bool
) -> NvLink:
    """A link that is down still counts the errors that took it down."""
    errors = _errors(calls, subject, handle, number, major) if health else {}
    if state != "active":
        return NvLink(link=number, active=False, state=state, **errors)
    version = calls.query("nvmlDeviceGetNvLinkVersion", subject, handle, number)
    kind = calls.query("nvmlDeviceGetNvLinkRemoteDeviceType", subject, handle, number)
    remote = calls.query("nvmlDeviceGetNvLinkRemotePciInfo", subject, handle, number)
    reported = calls.fields(subject, handle, (SPEED, REMOTE_LINK), number)
    speed = reported[SPEED] or calls.fields(subject, handle, (COMMON_SPEED,))[COMMON_SPEED]
    return NvLink(
        link=number,
        active=True,
        state=state,
        version=version,
        remote_kind=None if kind is None else REMOTE.get(kind, "unknown"),
        remote_bus_id=None if remote is None else normal_bus_id(raw_text(remote, "busId")),
        remote_link=reported[REMOTE_LINK],
        speed_mb_s=speed or None,
        **errors,
    )


def _errors(calls: Calls, subject: str, handle: Any, number: int, major: int | None) -> dict[str, Any]:
    """Return the counters as fields of NvLink: NVLink 5 has others than its predecessors, and NVML none of the old."""
    if major is not None and major >= BLACKWELL:
        reported = calls.fields(subject, handle, tuple(NVLINK_5_COUNTERS), number)
        counts = {NVLINK_5_COUNTERS[field]: value for field, value in reported.items() if value is not None}
        return {"counts": NvLink5Counts(**counts)} if counts else {}
    reported = calls.fields(subject, handle, (REPLAYS, RECOVERIES, CRC), number)
    for name, counter in OLD_COUNTERS.items():
        if reported[name] is None:
            reported[name] = calls.query("nvmlDeviceGetNvLinkErrorCounter", subject, handle, number, counter)
    return {"replay_errors": reported[REPLAYS], "recovery_errors": reported[RECOVERIES], "crc_errors": reported[CRC]}


def fabric(calls: Calls, subject: str, handle: Any) -> Fabric | None:
    """Return the registration; None and a gap if the library has neither call, or both fail.

    Drivers 525 and 535 have the older call only, which does not report health.
    """
    first: NvmlGap | None = None
    for structure, call in FABRIC_WAYS:
        info: Any = getattr(pynvml, structure, lambda: None)()
        if info is None:  # a binding older than the structure
            continue
        _, failure = calls.attempt(call, subject, handle, byref(info))
        if failure is None or failure.code not in (NOT_IN_LIBRARY, DEPRECATED, VERSION_MISMATCH):
            break
        first = first or failure
    else:
        failure = first
    if failure is not None:
        calls.gaps.append(failure)
        return None
    state = FABRIC_STATES.get(info.state)
    if state is None:
        return None
    return Fabric(
        state=state,
        status=info.status,
        clique_id=info.cliqueId,
        cluster_uuid=str(UUID(bytes=_bytes(info, "clusterUuid", 16))),
        health_mask=getattr(info, "healthMask", None),
        health_summary=FABRIC_SUMMARIES.get(getattr(info, "healthSummary", 0)),
    )


def _bytes(structure: Any, field: str, length: int) -> bytes:
    """Return the raw bytes of a field: nvidia-ml-py 12 declares the UUID as text, which ends at its first zero."""
    offset = getattr(type(structure), field).offset
    return bytes(structure)[offset : offset + length]
