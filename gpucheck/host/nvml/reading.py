"""One pass over NVML through the real pynvml: what each GPU is, its links, and how the pairs are connected.

Each failed call becomes a gap with the call and its return code, never a zero.
"""

from functools import partial
from typing import Any

import pynvml

from gpucheck.host.nvml.calls import Calls, Entering
from gpucheck.host.nvml.links import fabric, nvlinks
from gpucheck.host.nvml.notation import bits, cpu_list, plain
from gpucheck.model import DEFECT, Confidential, Gpu, Health, NvmlFailure, NvmlReading, PcieLink

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
        cpu_affinity=cpu_list(bits(cpus)) or None,
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
    """Return the UUIDs of the MIG devices, with which CUDA_VISIBLE_DEVICES names them. A slot may be empty: no gap."""
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
