"""Compute mode: may several processes use a GPU?

Source: nvmlDeviceGetComputeMode. Exclusive modes break programs that open a GPU from two processes (CUDA 46 or 101);
prohibited admits no process.
"""

from gpucheck.checks._nvml import evaluate_each_gpu, not_reported, query_nvml
from gpucheck.model import Check, Finding, Gpu, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "compute-mode"
EXCLUSIVE = (
    "Only one process at a time can open this GPU: data loaders, servers and training with two ranks on one GPU fail "
    "with CUDA error 46."
)


@evaluate_each_gpu(NAME, nothing="no GPU of this host has compute modes")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    mode = gpu.health.compute_mode
    if mode is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetComputeMode", what="compute mode")
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=(f"nvmlDeviceGetComputeMode: {mode}",))
    fix = f"nvidia-smi -i {gpu.pci_bus_id} -c DEFAULT"
    if mode == "default":
        return about.passes("compute mode default")
    if mode == "prohibited":
        why = "No process can create a CUDA context on this GPU."
        return about.fails("compute mode prohibited", "default", why, fix, "compute-mode-exclusive")
    if mode.startswith("exclusive"):
        return about.warns(f"compute mode {mode}", "default", EXCLUSIVE, fix, "compute-mode-exclusive")
    return about.unknown(f"compute mode unknown: NVML reported {mode}, which this gpucheck does not know", fix)


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), query_nvml, evaluate)
