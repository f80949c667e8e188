"""One pass over NVML through the real pynvml: what each GPU is, its links, and how the pairs are connected.

Each failed call becomes a gap with the call and its return code, never a zero.
"""

from ctypes import byref
from functools import partial
from typing import Any, Literal
from uuid import UUID

import pynvml

from gpucheck.host.nvml.calls import Calls, Entering, bits, normal_bus_id, plain, raw_text
from gpucheck.model import (
    DEFECT,
    DEPRECATED,
    NOT_IN_LIBRARY,
    Confidential,
    Fabric,
    Gpu,
    Health,
    NvLink,
    NvLink5Counts,
    NvmlFailure,
    NvmlGap,
    NvmlReading,
    PcieLink,
)
from gpucheck.printable import ranges

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


CLASSES = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # 0: two GPUs of one board
P2P_STATUS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
# By number: NVML_P2P_CAPS_INDEX_READ is the tuple (0,) in nvidia-ml-py 13.615.71.
P2P_CAPABILITIES = {"read": 0, "write": 1, "nvlink": 2}
CPU_WORDS, NODE_WORDS = 64, 16  # of 64 bits: 4096 CPUs, 1024 NUMA nodes
COMMON_SUBJECT = "host"
Matrix = tuple[tuple[str | None, ...], ...]


def read_nvml(entering: Entering, *, health: bool = True, shut_down: bool = True) -> NvmlReading | NvmlFailure:
    """Return everything at once, or a failure where NVML cannot be used at all; never raises.

    health: also how each GPU is, and the error counters of its links.
    shut_down: not for a process that ends now: its answers must not be lost to a library that hangs at the end.
    """
    calls = Calls(entering)
    try:
        return _answer(calls, health=health)
    finally:
        if shut_down:
            calls.attempt("nvmlShutdown", COMMON_SUBJECT)


def _answer(calls: Calls, *, health: bool) -> NvmlReading | NvmlFailure:
    try:
        calls.must("nvmlInit", COMMON_SUBJECT)
        return _read(calls, health=health)
    except pynvml.NVMLError as error:
        detail = plain(str(error))
        return NvmlFailure(call=calls.entered, code=error.value, name=type(error).__name__, detail=detail)
    except Exception as error:  # of the binding, or of gpucheck
        return NvmlFailure(call=calls.entered, code=DEFECT, name=type(error).__name__, detail=plain(str(error)))


def _read(calls: Calls, *, health: bool) -> NvmlReading:
    driver = calls.version("nvmlSystemGetDriverVersion", COMMON_SUBJECT)
    library = calls.version("nvmlSystemGetNVMLVersion", COMMON_SUBJECT)
    cuda = calls.query("nvmlSystemGetCudaDriverVersion_v2", COMMON_SUBJECT)
    gpus, handles = [], []
    for index in range(calls.must("nvmlDeviceGetCount", COMMON_SUBJECT)):
        subject = f"gpu index {index}"
        handle = calls.query("nvmlDeviceGetHandleByIndex", subject, index)
        if handle is None:
            continue
        make = partial(_gpu, calls, index, handle, health=health)
        gpu = calls.part("reading of the GPU", subject, make, None)
        if gpu is not None:
            gpus.append(gpu)
            handles.append(handle)
    none: tuple[Matrix, dict[str, Matrix]] = ((), {})
    ancestors, p2p = calls.part("reading of the pairs", COMMON_SUBJECT, lambda: _pairs(calls, gpus, handles), none)
    return NvmlReading(
        driver_version=driver,
        nvml_version=library,
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        gpus=tuple(gpus),
        ancestors=ancestors,
        p2p=p2p,
        gaps=tuple(calls.gaps),
        confidential=calls.part("confidential computing", COMMON_SUBJECT, lambda: _confidential(calls), None),
    )


def _gpu(calls: Calls, index: int, handle: Any, *, health: bool) -> Gpu | None:
    """Return one GPU; None (and a gap) without its bus id, for then nothing else can be matched to it."""
    pci = calls.query("nvmlDeviceGetPciInfo", f"gpu index {index}", handle)
    bus_id = None if pci is None else calls.bus_id(f"gpu index {index}", pci)
    if bus_id is None:
        return None
    subject = f"gpu:{bus_id}"

    def query(call: str, *arguments: Any) -> Any:
        return calls.query(call, subject, handle, *arguments)

    name, uuid = query("nvmlDeviceGetName"), query("nvmlDeviceGetUUID")
    capability = query("nvmlDeviceGetCudaComputeCapability")
    major = None if capability is None else capability[0]
    # Version 2 reports the driver's own share apart from what programs use; drivers before 510 have only the first.
    memory = calls.newest(
        subject, ("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2), ("nvmlDeviceGetMemoryInfo", handle)
    )
    bar1 = query("nvmlDeviceGetBAR1MemoryInfo")
    cpus = query("nvmlDeviceGetCpuAffinity", CPU_WORDS)
    nodes = bits(query("nvmlDeviceGetMemoryAffinity", NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE))
    return Gpu(
        index=index,
        name=plain(name or "") or "unknown",
        uuid=plain(uuid or "") or "unknown",
        pci_bus_id=bus_id,
        device_id=f"{pci.pciDeviceId >> 16:04x}",
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        memory_bytes=None if memory is None else memory.total,
        bar1_bytes=None if bar1 is None else bar1.bar1Total,
        numa_node=nodes[0] if len(nodes) == 1 else None,
        cpu_affinity=ranges(bits(cpus)) or None,
        pcie=PcieLink(
            generation=query("nvmlDeviceGetCurrPcieLinkGeneration"),
            width=query("nvmlDeviceGetCurrPcieLinkWidth"),
            max_generation=query("nvmlDeviceGetMaxPcieLinkGeneration"),
            max_width=query("nvmlDeviceGetMaxPcieLinkWidth"),
            device_max_generation=query("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        ),
        nvlinks=calls.part("nvlinks", subject, lambda: nvlinks(calls, bus_id, handle, major=major, health=health), ()),
        fabric=calls.part("fabric", subject, lambda: fabric(calls, subject, handle), None),
        mig_uuids=calls.part("MIG devices", subject, lambda: _mig_uuids(calls, subject, handle), ()) if health else (),
        health=_health(calls, subject, handle, None if memory is None else memory.used) if health else Health(),
    )


def _mig_uuids(calls: Calls, subject: str, handle: Any) -> tuple[str, ...]:
    most, refusal = calls.attempt("nvmlDeviceGetMaxMigDeviceCount", subject, handle)
    calls.gaps += [refusal] if refusal is not None and not refusal.absent else []
    slots = (calls.attempt("nvmlDeviceGetMigDeviceHandleByIndex", subject, handle, n)[0] for n in range(most or 0))
    uuids = [calls.query("nvmlDeviceGetUUID", subject, device) for device in slots if device is not None]
    return tuple(plain(uuid) for uuid in uuids if uuid is not None)


def _health(calls: Calls, subject: str, handle: Any, memory_used: int | None) -> Health:
    from gpucheck.host.nvml.health import read_health

    return calls.part("health", subject, lambda: read_health(calls, subject, handle, memory_used), Health())


def _confidential(calls: Calls) -> Confidential | None:
    from gpucheck.host.nvml.health import confidential

    return confidential(calls, COMMON_SUBJECT)


def _pairs(calls: Calls, gpus: list[Gpu], handles: list[Any]) -> tuple[Matrix, dict[str, Matrix]]:
    """Path classes (the same both ways, so queried once) and P2P status (queried both ways)."""
    size = range(len(gpus))
    ancestors: list[list[str | None]] = [["X" if a == b else None for b in size] for a in size]
    p2p: dict[str, list[list[str | None]]] = {name: [[None for _ in size] for _ in size] for name in P2P_CAPABILITIES}
    for a in size:
        for b in size:
            subject = f"pair:{gpus[a].pci_bus_id}-{gpus[b].pci_bus_id}"
            if a < b:
                level = calls.query("nvmlDeviceGetTopologyCommonAncestor", subject, handles[a], handles[b])
                ancestors[a][b] = ancestors[b][a] = CLASSES.get(level)
            for name, capability in P2P_CAPABILITIES.items() if a != b else ():
                status = calls.query("nvmlDeviceGetP2PStatus", subject, handles[a], handles[b], capability)
                p2p[name][a][b] = P2P_STATUS.get(status)
    return tuple(map(tuple, ancestors)), {name: tuple(map(tuple, rows)) for name, rows in p2p.items()}
