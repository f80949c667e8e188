"""Select GPUs, and check whether they can be measured. Pure functions; every error states what to do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpucheck.knowledge.codes import Subject
from gpucheck.measure.values import MIB
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.device import Device
from gpucheck.model.host.hardware import GpuProcess

RESERVE_BYTES = 768 * MIB  # a CUDA context, its kernels and the framework's own pool
LEAST_BYTES = 4 * MIB
COPIES = Subject(check="p2p-copies")
MPS_SERVER = "nvidia-cuda-mps-server"


class Unmeasurable(Exception):
    """The measurement is not possible. finding: the reason. usage: the options are wrong, which no report contains."""

    def __init__(self, finding: Finding, *, usage: bool = False) -> None:
        super().__init__(f"{finding.seen}: {finding.why} Do this: {finding.fix}")
        self.finding = finding
        self.usage = usage


def choose(gpus: Sequence[Gpu], words: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs named by ``0,1`` or a list of UUIDs, all by default, each once. Raises Unmeasurable.

    ``0,0`` names one GPU twice: copies stay inside one that is alone.
    """
    if words is None:
        return tuple(gpus)
    tokens = [token.strip() for token in words.split(",")]
    found = [_named(gpus, token) for token in tokens]
    once = {gpu.index: gpu for gpu in found}
    if len(once) < len(found) and len(set(tokens)) > 1:
        twice = next(gpu for gpu in found if sum(other.index == gpu.index for other in found) > 1)
        values: dict[str, Any] = {"twice": twice.index, "bus_id": twice.pci_bus_id}
        raise Unmeasurable(COPIES.unknown("measure.device-named-twice", f"--devices {words}", **values), usage=True)
    return tuple(once.values())


def _named(gpus: Sequence[Gpu], token: str) -> Gpu:
    if token.isascii() and token.isdigit():
        matches = [gpu for gpu in gpus if gpu.index == int(token)]
    else:
        matches = [gpu for gpu in gpus if token and gpu.uuid.lower().startswith(token.lower())]
    if len(matches) == 1:
        return matches[0]
    code = "measure.device-ambiguous" if matches else "measure.device-not-there"
    there = tuple(gpu.index for gpu in gpus)
    raise Unmeasurable(COPIES.unknown(code, f"--devices: {token!r}", there=there), usage=True)


def admit(gpus: Sequence[Gpu], *, contended: bool) -> str:
    """Return a note on other processes that use these GPUs, empty without any.

    Raises Unmeasurable for MIG, for a GPU that accepts no process, and for a busy one.
    """
    cut = [gpu for gpu in gpus if gpu.health.mig]
    if cut:
        raise _refuse(cut, "measure.mig-on", "MIG is on", verdict=Verdict.SKIP)
    closed = [gpu for gpu in gpus if gpu.health.compute_mode == "prohibited"]
    if closed:
        raise _refuse(closed, "measure.compute-mode-prohibited", "compute mode is prohibited")
    busy = [gpu for gpu in gpus if any(map(_copies_too, gpu.health.processes or ()))]
    if busy and not contended:
        raise _refuse(busy, "measure.gpu-in-use", f"in use by {_processes(busy)}")
    return f"contended: {_processes(busy)} ran during the copies, so no result can fail" if busy else ""


def _copies_too(process: GpuProcess) -> bool:
    """Return whether a process may copy; the MPS server is idle, its clients are separate processes."""
    return process.kind == "compute" and Path(process.name or "").name != MPS_SERVER


def _processes(gpus: Sequence[Gpu]) -> str:
    users = {p.pid: p.name or "unnamed" for gpu in gpus for p in gpu.health.processes or () if _copies_too(p)}
    return ", ".join(f"process {pid} ({name})" for pid, name in users.items())


def _refuse(
    gpus: Sequence[Gpu], code: str, seen: str, *, verdict: Verdict = Verdict.UNKNOWN, **values: Any
) -> Unmeasurable:
    numbers = ", ".join(str(gpu.index) for gpu in gpus)
    subject = Subject(check=COPIES.check, name=f"gpu:{gpus[0].pci_bus_id}" if len(gpus) == 1 else COPIES.name)
    return Unmeasurable(subject.finding(verdict, code, f"GPU {numbers}: {seen}", **values))


def room(gpus: Sequence[Gpu], wanted_bytes: int) -> tuple[int, str | None]:
    """Return the buffer size that fits the GPU with the least free memory, and a note if it is less than requested.

    Raises Unmeasurable if not even a small one fits.
    """
    free = [
        (gpu.memory_bytes - gpu.health.memory_used_bytes, gpu)
        for gpu in gpus
        if gpu.memory_bytes is not None and gpu.health.memory_used_bytes is not None
    ]
    if not free:
        return wanted_bytes, None
    least, fullest = min(free, key=lambda item: item[0])
    fits = (least - RESERVE_BYTES) // 2 // MIB * MIB
    if fits >= wanted_bytes:
        return wanted_bytes, None
    if fits < LEAST_BYTES:
        needed = (RESERVE_BYTES + 2 * LEAST_BYTES) // MIB
        raise _refuse([fullest], "measure.memory-short", f"{least // MIB} MiB free", needed_mib=needed)
    shrunk = f"buffers shrunk from {wanted_bytes // MIB} to {fits // MIB} MiB"
    return fits, f"{shrunk}: GPU {fullest.index} has {least // MIB} MiB free"


def device(gpu: Gpu) -> Device:
    """Return the GPU as a device of copies."""
    return Device(index=gpu.index, name=gpu.name, bus_id=gpu.pci_bus_id, uuid=gpu.uuid, numa_node=gpu.numa_node)
