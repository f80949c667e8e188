"""Persistence: does the driver keep the GPUs initialized while no process uses them?

Source: nvmlDeviceGetPersistenceMode. Without it the first client of every job initializes each GPU again (1 to 3
seconds a GPU, NVIDIA's driver persistence page), and settings such as power limits are lost in between.
"""

from gpucheck.checks._nvml import evaluate_each_gpu, not_reported, query_nvml
from gpucheck.model import Check, Finding, Gpu, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "persistence"
WHY = (
    "The driver unloads GPU state when the last client exits: the next client waits 1 to 3 seconds per GPU, and "
    "settings such as power limits are lost."
)
FIX = "on the host: systemctl enable --now nvidia-persistenced (or until the next boot: nvidia-smi -pm 1)"


@evaluate_each_gpu(NAME, nothing="no GPU of this host has persistence mode")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    if gpu.health.persistence is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetPersistenceMode", what="persistence mode")
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}")
    if gpu.health.persistence:
        return about.passes("persistence mode on")
    return about.warns("persistence mode off", "on", WHY, FIX, "persistence-off")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), query_nvml, evaluate)
