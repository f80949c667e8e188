"""Persistence: does the driver keep the GPUs initialized while no process uses them?

Source: nvmlDeviceGetPersistenceMode. Without it the first client of every job initializes each GPU again (1 to 3
seconds a GPU, NVIDIA's driver persistence page), and settings such as power limits are lost in between.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "persistence"


@of_each_gpu(NAME, nothing="gpu.no-persistence-mode")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    if gpu.health.persistence is None:
        return not_reported(NAME, facts.nvml, gpu, "nvmlDeviceGetPersistenceMode", what="persistence mode")
    subject = about(NAME, gpu)
    if gpu.health.persistence:
        return subject.passes("persistence mode on")
    return subject.warns("gpu.persistence-off", "persistence mode off", "on")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), evaluate=evaluate, needs=("nvml",))
