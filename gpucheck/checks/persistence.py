"""Persistence: does the driver keep the GPUs initialised while nobody uses them?

Source: nvmlDeviceGetPersistenceMode. Without it the first call of every job pays the initialisation (seconds on eight
GPUs), and settings such as power limits are lost in between.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "persistence"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU."""
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing="no GPU of this host has the mode")


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    if gpu.health.persistence is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetPersistenceMode")
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}")
    if gpu.health.persistence:
        return about.passes("on", "on")
    why = "the driver lets the GPU go when its last user ends: slow first calls, and lost settings"
    fix = "systemctl enable --now nvidia-persistenced (or: nvidia-smi -pm 1)"
    return about.warns("off", "on", why, fix, "persistence-off")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
