"""Select GPUs, and check whether they can be measured. Pure functions; every error states what to do."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpucheck.measure.values import MIB, Device
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.host.health import GpuProcess

RESERVE_BYTES = 768 * MIB  # a CUDA context, its kernels and the framework's own pool
LEAST_BYTES = 4 * MIB
MPS_SERVER = "nvidia-cuda-mps-server"


class Unmeasurable(Exception):
    """The measurement is not possible. usage: the options are wrong. finding: the same for a report."""

    def __init__(self, message: str, *, usage: bool = False, finding: Finding | None = None) -> None:
        super().__init__(message)
        self.usage = usage
        self.finding = finding


class Chosen(NamedTuple):
    """The GPUs to measure, each once. local: the copies stay inside one GPU."""

    gpus: tuple[Gpu, ...]
    local: bool


def choose(gpus: Sequence[Gpu], words: str | None) -> Chosen:
    """Return the GPUs named by ``0,1`` or a list of UUIDs, all by default. Raises Unmeasurable.

    ``0,0`` names one GPU twice, for copies inside it.
    """
    if words is None:
        return Chosen(tuple(gpus), local=len(gpus) == 1)
    tokens = [token.strip() for token in words.split(",")]
    found = [_named(gpus, token) for token in tokens]
    once = {gpu.index: gpu for gpu in found}
    if len(once) == 1 and len(set(tokens)) == 1:
        return Chosen(tuple(once.values()), local=True)
    if len(once) < len(found):
        twice = next(gpu for gpu in found if sum(other.index == gpu.index for other in found) > 1)
        raise Unmeasurable(
            f"--devices {words}: GPU {twice.index} ({twice.pci_bus_id}) is named twice. Name each GPU once, or use "
            f"--devices {twice.index},{twice.index} for copies inside one GPU.",
            usage=True,
        )
    return Chosen(tuple(once.values()), local=False)


def _named(gpus: Sequence[Gpu], token: str) -> Gpu:
    there = f"This host has GPU {', '.join(str(gpu.index) for gpu in gpus)}." if gpus else "This host has no GPU."
    if token.isascii() and token.isdigit():
        for gpu in gpus:
            if gpu.index == int(token):
                return gpu
        raise Unmeasurable(f"--devices: there is no GPU {token}. {there}", usage=True)
    matches = [gpu for gpu in gpus if token and gpu.uuid.lower().startswith(token.lower())]
    if len(matches) == 1:
        return matches[0]
    what = "names more than one GPU" if matches else "is neither the number nor the UUID of a GPU"
    raise Unmeasurable(f"--devices: {token!r} {what}. {there} nvidia-smi -L lists the UUIDs.", usage=True)


def admit(gpus: Sequence[Gpu], *, contended: bool) -> tuple[str, ...]:
    """Notes for the report. Raises Unmeasurable for MIG, for a GPU that accepts no process, and for a busy one."""
    cut = [gpu for gpu in gpus if gpu.health.mig]
    if cut:
        raise _refuse(
            cut,
            "MIG is on",
            "MIG instances do not support peer access",
            "turn it off (nvidia-smi -mig 0, then reset the GPU), or omit these GPUs with --devices",
            cause="mig-enabled",
            verdict=Verdict.SKIP,
        )
    closed = [gpu for gpu in gpus if gpu.health.compute_mode == "prohibited"]
    if closed:
        raise _refuse(
            closed,
            "compute mode is prohibited",
            "the GPU accepts no compute process",
            "nvidia-smi -c 0",
            cause="compute-mode-exclusive",
        )
    busy = [gpu for gpu in gpus if any(map(_copies_too, gpu.health.processes or ()))]
    if busy and not contended:
        raise _refuse(
            busy,
            f"in use by {_processes(busy)}",
            "the results would include traffic of the other process, and the copies would slow it down",
            "wait until it exits, omit the GPU with --devices, or accept results that cannot fail: --allow-busy-gpus",
        )
    return (f"contended: {_processes(busy)} ran during the copies, so no result can fail",) if busy else ()


def _copies_too(process: GpuProcess) -> bool:
    """Return whether a process may copy; the MPS server is idle, its clients are separate processes."""
    return process.kind == "compute" and Path(process.name or "").name != MPS_SERVER


def _processes(gpus: Sequence[Gpu]) -> str:
    users = {p.pid: p.name or "unnamed" for gpu in gpus for p in gpu.health.processes or () if _copies_too(p)}
    return ", ".join(f"process {pid} ({name})" for pid, name in users.items())


def _refuse(
    gpus: Sequence[Gpu],
    seen: str,
    why: str,
    fix: str,
    *,
    cause: str | None = None,
    verdict: Verdict = Verdict.UNKNOWN,
) -> Unmeasurable:
    numbers = ", ".join(str(gpu.index) for gpu in gpus)
    subject = f"gpu:{gpus[0].pci_bus_id}" if len(gpus) == 1 else "host"
    return Unmeasurable(
        f"GPU {numbers}: {seen}: {why}. Do this: {fix}.",
        finding=Finding(
            check="p2p-copies",
            verdict=verdict,
            subject=subject,
            seen=f"GPU {numbers}: {seen}",
            cause=cause,
            confidence="certain" if cause else None,
            why=why,
            fix=fix,
        ),
    )


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
        raise _refuse(
            [fullest],
            f"{least // MIB} MiB free",
            f"two buffers and a CUDA context need {(RESERVE_BYTES + 2 * LEAST_BYTES) // MIB} MiB",
            "nvidia-smi shows the processes that use the memory; end them, or omit the GPU with --devices",
        )
    shrunk = f"buffers shrunk from {wanted_bytes // MIB} to {fits // MIB} MiB"
    return fits, f"{shrunk}: GPU {fullest.index} has {least // MIB} MiB free"


def device(gpu: Gpu) -> Device:
    """Return the GPU as a device of copies."""
    return Device(index=gpu.index, name=gpu.name, bus_id=gpu.pci_bus_id, uuid=gpu.uuid, numa_node=gpu.numa_node)
