"""Compute mode: may several processes use a GPU?

Source: nvmlDeviceGetComputeMode. Exclusive modes break programs that open a GPU from two processes (CUDA 46 or 101);
prohibited admits no process.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "compute-mode"


@of_each_gpu(NAME, nothing="gpu.no-compute-modes")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    mode = gpu.health.compute_mode
    if mode is None:
        return not_reported(NAME, facts.nvml, gpu, "nvmlDeviceGetComputeMode", what="compute mode")
    subject = about(NAME, gpu, f"nvmlDeviceGetComputeMode: {mode}")
    if mode == "default":
        return subject.passes("compute mode default")
    if mode == "prohibited":
        return subject.fails("gpu.compute-mode-prohibited", "compute mode prohibited", "default")
    if mode.startswith("exclusive"):
        return subject.warns("gpu.compute-mode-exclusive", f"compute mode {mode}", "default")
    return subject.unknown("gpu.compute-mode-unknown", mode=mode)


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), evaluate=evaluate, needs=("nvml",))
