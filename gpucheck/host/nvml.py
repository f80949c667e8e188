"""One pass over NVML through the real pynvml: what each GPU is, its links, and how the pairs are connected.

Whatever NVML refuses becomes a gap with the call and its return code, never a zero.
"""

from collections.abc import Callable
from ctypes import byref
from typing import Any, Literal

import pynvml

from gpucheck.model import Fabric, Gpu, NvLink, NvmlFailure, NvmlGap, NvmlReading, PcieLink

# Told before each call: its name and its subject. A child passes it on, so that a hang or a crash has a name.
Entering = Callable[[str, str], None]

CLASSES = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # 0: two GPUs of one board
P2P_STATUS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
# By number: NVML_P2P_CAPS_INDEX_READ is the tuple (0,) in nvidia-ml-py 13.615.71.
P2P_CAPABILITIES = {"read": 0, "write": 1, "nvlink": 2}
REMOTE: dict[int, Literal["gpu", "npu", "switch"]] = {0: "gpu", 1: "npu", 2: "switch"}
STATES: dict[int, Literal["not-supported", "not-started", "in-progress", "completed"]] = {
    0: "not-supported",
    1: "not-started",
    2: "in-progress",
    3: "completed",
}
NOT_THERE = (2, 3, 13)  # INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND: past the last NVLink
CPU_WORDS, NODE_WORDS = 64, 16  # of 64 bits: 4096 CPUs, 1024 NUMA nodes
COMMON_SUBJECT = "host"


def read(entering: Entering) -> NvmlReading | NvmlFailure:
    """Everything at once. A failure only where NVML cannot be used at all."""
    calls = _Calls(entering)
    try:
        calls.must("nvmlInit", COMMON_SUBJECT)
    except pynvml.NVMLError as error:
        return NvmlFailure(call="nvmlInit", code=error.value, name=type(error).__name__, detail=str(error))
    try:
        return _read(calls)
    except pynvml.NVMLError as error:
        return NvmlFailure(call=calls.entered, code=error.value, name=type(error).__name__, detail=str(error))
    finally:
        calls.ask("nvmlShutdown", COMMON_SUBJECT)


class _Calls:
    """pynvml behind one place that announces each call and keeps what was refused."""

    def __init__(self, entering: Entering) -> None:
        self.entering = entering
        self.entered = ""
        self.gaps: list[NvmlGap] = []

    def must(self, call: str, subject: str, *arguments: Any) -> Any:
        """The answer. Raises NVMLError."""
        self.entered = call
        self.entering(call, subject)
        return getattr(pynvml, call)(*arguments)

    def ask(self, call: str, subject: str, *arguments: Any) -> Any:
        """The answer, or None and a gap."""
        try:
            return self.must(call, subject, *arguments)
        except pynvml.NVMLError as error:
            self.gaps.append(NvmlGap(call=call, subject=subject, code=error.value, name=type(error).__name__))
            return None


def _read(calls: _Calls) -> NvmlReading:
    driver = calls.must("nvmlSystemGetDriverVersion", COMMON_SUBJECT)
    library = calls.must("nvmlSystemGetNVMLVersion", COMMON_SUBJECT)
    cuda = calls.ask("nvmlSystemGetCudaDriverVersion_v2", COMMON_SUBJECT)
    gpus, handles = [], []
    for index in range(calls.must("nvmlDeviceGetCount", COMMON_SUBJECT)):
        handle = calls.ask("nvmlDeviceGetHandleByIndex", f"gpu index {index}", index)
        gpu = _gpu(calls, index, handle) if handle is not None else None
        if gpu is not None:
            gpus.append(gpu)
            handles.append(handle)
    ancestors, p2p = _pairs(calls, gpus, handles)
    return NvmlReading(
        driver_version=_text(driver),
        nvml_version=_text(library),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        gpus=tuple(gpus),
        ancestors=ancestors,
        p2p=p2p,
        gaps=tuple(calls.gaps),
    )


def _gpu(calls: _Calls, index: int, handle: Any) -> Gpu | None:
    """One GPU; None (and a gap) where not even its bus id is told, for then nothing else can be matched to it."""
    pci = calls.ask("nvmlDeviceGetPciInfo", f"gpu index {index}", handle)
    if pci is None:
        return None
    bus_id = normal_bus_id(_text(pci.busId))
    subject = f"gpu:{bus_id}"

    def ask(call: str, *arguments: Any) -> Any:
        return calls.ask(call, subject, handle, *arguments)

    name, uuid = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetUUID")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    memory, bar1 = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetBAR1MemoryInfo")
    cpus = ask("nvmlDeviceGetCpuAffinity", CPU_WORDS)
    nodes = _bits(ask("nvmlDeviceGetMemoryAffinity", NODE_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE))
    return Gpu(
        index=index,
        name="unknown" if name is None else _text(name),
        uuid="unknown" if uuid is None else _text(uuid),
        pci_bus_id=bus_id,
        device_id=f"{pci.pciDeviceId >> 16:04x}",
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        memory_bytes=None if memory is None else memory.total,
        bar1_bytes=None if bar1 is None else bar1.bar1Total,
        numa_node=nodes[0] if len(nodes) == 1 else None,
        cpu_affinity=cpu_list(_bits(cpus)) or None,
        pcie=PcieLink(
            generation=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
            max_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            max_width=ask("nvmlDeviceGetMaxPcieLinkWidth"),
            device_max_generation=ask("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        ),
        nvlinks=_nvlinks(calls, bus_id, handle),
        fabric=_fabric(ask),
    )


def _nvlinks(calls: _Calls, bus_id: str, handle: Any) -> tuple[NvLink, ...]:
    """Every port up to the first that does not exist: the count differs by product, and no header knows them all."""
    links: list[NvLink] = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        subject = f"link:{bus_id}/{number}"
        try:
            active = bool(calls.must("nvmlDeviceGetNvLinkState", subject, handle, number))
        except pynvml.NVMLError as error:
            if error.value in NOT_THERE:
                break
            calls.gaps.append(NvmlGap(call=calls.entered, subject=subject, code=error.value, name=type(error).__name__))
            continue
        links.append(_active_link(calls, subject, handle, number) if active else NvLink(link=number, active=False))
    return tuple(links)


def _active_link(calls: _Calls, subject: str, handle: Any, number: int) -> NvLink:
    version = calls.ask("nvmlDeviceGetNvLinkVersion", subject, handle, number)
    kind = calls.ask("nvmlDeviceGetNvLinkRemoteDeviceType", subject, handle, number)
    remote = calls.ask("nvmlDeviceGetNvLinkRemotePciInfo", subject, handle, number)
    return NvLink(
        link=number,
        active=True,
        version=version,
        remote_kind=None if kind is None else REMOTE.get(kind, "unknown"),
        remote_bus_id=None if remote is None else normal_bus_id(_text(remote.busId)),
    )


def _fabric(ask: Callable[..., Any]) -> Fabric | None:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if ask("nvmlDeviceGetGpuFabricInfoV", byref(info)) is None:
        return None
    state = STATES.get(info.state)
    return None if state is None else Fabric(state=state, status=info.status)


Matrix = tuple[tuple[str | None, ...], ...]


def _pairs(calls: _Calls, gpus: list[Gpu], handles: list[Any]) -> tuple[Matrix, dict[str, Matrix]]:
    """Path classes (the same both ways, so asked once) and P2P status (asked both ways)."""
    size = range(len(gpus))
    ancestors: list[list[str | None]] = [["X" if a == b else None for b in size] for a in size]
    p2p: dict[str, list[list[str | None]]] = {name: [[None for _ in size] for _ in size] for name in P2P_CAPABILITIES}
    for a in size:
        for b in size:
            subject = f"pair:{gpus[a].pci_bus_id}-{gpus[b].pci_bus_id}"
            if a < b:
                level = calls.ask("nvmlDeviceGetTopologyCommonAncestor", subject, handles[a], handles[b])
                ancestors[a][b] = ancestors[b][a] = CLASSES.get(level)
            for name, capability in P2P_CAPABILITIES.items() if a != b else ():
                status = calls.ask("nvmlDeviceGetP2PStatus", subject, handles[a], handles[b], capability)
                p2p[name][a][b] = P2P_STATUS.get(status)
    return tuple(map(tuple, ancestors)), {name: tuple(map(tuple, rows)) for name, rows in p2p.items()}


def normal_bus_id(nvml: str) -> str:
    """NVML's ``00000000:3B:00.0`` as Linux writes it: ``0000:3b:00.0``."""
    domain, rest = nvml.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def cpu_list(cpus: list[int]) -> str:
    """CPU numbers as Linux lists them: ``0-15,32-47``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


def _bits(words: Any) -> list[int]:
    if words is None:
        return []
    return [64 * position + bit for position, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
