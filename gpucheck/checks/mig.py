"""MIG: is a GPU cut into instances, or about to be?

Source: nvmlDeviceGetMigMode. Instances have no peer-to-peer between them, so multi-GPU training cannot use them. That
is a choice and no fault; a mode that waits for a reset is one.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "mig"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU that has MIG."""
    yield from each_gpu(NAME, nvml, _judge, nothing="no GPU of this host has MIG")


def _judge(gpu: Gpu) -> Finding | None:
    on, pending = gpu.health.mig, gpu.health.mig_pending
    if on is None:
        return None
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=(f"MIG now {on}, after a reset {pending}",))
    if pending is not None and pending != on:
        why = "the mode was changed and takes effect at the next reset; until then the GPU is in between"
        fix = f"drain the GPU, then: nvidia-smi --gpu-reset -i {gpu.pci_bus_id}"
        return about.warns(_word(on), f"{_word(pending)} (pending)", why, fix, "mig-enabled")
    if on:
        why = "the GPU is cut into instances, which have no peer-to-peer: multi-GPU training cannot use it"
        return about.skips(why, "on", cause="mig-enabled")
    return about.passes("off")


def _word(on: bool) -> str:
    return "on" if on else "off"


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
