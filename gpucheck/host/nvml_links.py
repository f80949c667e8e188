"""NVLink ports and the fabric of one GPU, as NVML tells them."""

from ctypes import byref
from typing import Any, Literal
from uuid import UUID

import pynvml

from gpucheck.host.notation import normal_bus_id, raw_text
from gpucheck.host.nvml_calls import Calls
from gpucheck.model import Fabric, NvLink

# INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND: past the last NVLink
NOT_SUPPORTED = 3
NOT_THERE = (2, NOT_SUPPORTED, 13)
REMOTE: dict[int, Literal["gpu", "npu", "switch"]] = {0: "gpu", 1: "npu", 2: "switch"}
STATES: dict[int, Literal["not-supported", "not-started", "in-progress", "completed"]] = {
    0: "not-supported",
    1: "not-started",
    2: "in-progress",
    3: "completed",
}
SPEED, COMMON_SPEED = "NVML_FI_DEV_NVLINK_GET_SPEED", "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON"
REMOTE_LINK = "NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID"
REPLAYS, RECOVERIES, CRC = (f"NVML_FI_DEV_NVLINK_ERROR_DL_{kind}" for kind in ("REPLAY", "RECOVERY", "CRC"))
# The same counters for drivers that do not have the fields: nvmlNvLinkErrorCounter_t.
OLD_COUNTERS = {REPLAYS: 0, RECOVERIES: 1, CRC: 2}


def nvlinks(calls: Calls, bus_id: str, handle: Any, *, health: bool) -> tuple[NvLink, ...]:
    """Every port up to the first that does not exist: the count differs by product, and no header knows them all."""
    links: list[NvLink] = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        subject = f"link:{bus_id}/{number}"
        state, refusal = calls.attempt("nvmlDeviceGetNvLinkState", subject, handle, number)
        if refusal is not None and refusal.code in NOT_THERE:
            if number == 0 and refusal.code != NOT_SUPPORTED:
                calls.gaps.append(refusal)
            break
        if refusal is not None:
            calls.gaps.append(refusal)
            continue
        links.append(_link(calls, subject, handle, number, active=bool(state), health=health))
    return tuple(links)


def _link(calls: Calls, subject: str, handle: Any, number: int, *, active: bool, health: bool) -> NvLink:
    """A link that is down still counts the errors that took it down."""
    replays, recoveries, crc = _errors(calls, subject, handle, number) if health else (None, None, None)
    if not active:
        return NvLink(link=number, active=False, replay_errors=replays, recovery_errors=recoveries, crc_errors=crc)
    version = calls.ask("nvmlDeviceGetNvLinkVersion", subject, handle, number)
    kind = calls.ask("nvmlDeviceGetNvLinkRemoteDeviceType", subject, handle, number)
    remote = calls.ask("nvmlDeviceGetNvLinkRemotePciInfo", subject, handle, number)
    told = calls.fields(subject, handle, (SPEED, REMOTE_LINK), number)
    speed = told[SPEED] or calls.fields(subject, handle, (COMMON_SPEED,))[COMMON_SPEED]
    return NvLink(
        link=number,
        active=True,
        version=version,
        remote_kind=None if kind is None else REMOTE.get(kind, "unknown"),
        remote_bus_id=None if remote is None else normal_bus_id(raw_text(remote, "busId")),
        remote_link=told[REMOTE_LINK],
        speed_mb_s=speed or None,
        replay_errors=replays,
        recovery_errors=recoveries,
        crc_errors=crc,
    )


def _errors(calls: Calls, subject: str, handle: Any, number: int) -> tuple[int | None, int | None, int | None]:
    told = calls.fields(subject, handle, (REPLAYS, RECOVERIES, CRC), number)
    for name, counter in OLD_COUNTERS.items():
        if told[name] is None:
            told[name] = calls.ask("nvmlDeviceGetNvLinkErrorCounter", subject, handle, number, counter)
    return told[REPLAYS], told[RECOVERIES], told[CRC]


def fabric(calls: Calls, subject: str, handle: Any) -> Fabric | None:
    """The registration; a driver that is too old for the call is a gap."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if calls.ask("nvmlDeviceGetGpuFabricInfoV", subject, handle, byref(info)) is None:
        return None
    state = STATES.get(info.state)
    if state is None:
        return None
    return Fabric(
        state=state,
        status=info.status,
        clique_id=info.cliqueId,
        cluster_uuid=str(UUID(bytes=bytes(info.clusterUuid))),
        health_mask=info.healthMask,
    )
