"""Compute mode: may several processes use a GPU?

Source: nvmlDeviceGetComputeMode. Exclusive modes break programs that open a GPU from two processes (CUDA 46 or 101);
prohibited lets none in.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "compute-mode"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU."""
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing="no GPU of this host has compute modes")


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    mode = gpu.health.compute_mode
    if mode is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetComputeMode")
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}")
    fix = f"nvidia-smi -i {gpu.pci_bus_id} -c DEFAULT"
    if mode == "default":
        return about.passes(mode, "default")
    if mode == "prohibited":
        why = "no process may create a CUDA context on this GPU"
        return about.fails(mode, "default", why, fix, "compute-mode-exclusive")
    why = "only one process may hold the GPU: data loaders, servers and tests that open it twice fail with CUDA 46"
    return about.warns(mode, "default", why, fix, "compute-mode-exclusive")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
