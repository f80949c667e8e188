"""MIG: is a GPU divided into instances, or about to be?

Source: nvmlDeviceGetMigMode. Instances have no peer-to-peer access, so multi-GPU training cannot use them: a warning,
because it may be intentional. So is a mode that waits for a reset.
"""

from gpucheck.checks._nvml import evaluate_each_gpu, not_reported, query_nvml
from gpucheck.model import Check, Finding, Gpu, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "mig"
WHY = "MIG instances have no peer-to-peer access to other instances or GPUs: multi-GPU training cannot use this GPU."
PENDING = "The mode was changed and takes effect at the next reset of the GPU."


@evaluate_each_gpu(NAME, nothing="no GPU of this host has MIG")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    on, pending = gpu.health.mig, gpu.health.mig_pending
    if on is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetMigMode", what="MIG mode")
    later = "not reported" if pending is None else _word(pending)
    evidence = f"nvmlDeviceGetMigMode: current {_word(on)}, pending {later}"
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=(evidence,))
    if pending is not None and pending != on:
        seen = f"MIG change pending (now {_word(on)}, {_word(pending)} after reset)"
        fix = f"drain the GPU, then: nvidia-smi --gpu-reset -i {gpu.pci_bus_id}"
        return about.warns(seen, None, PENDING, fix, "mig-enabled")
    if on:
        fix = (
            f"to train on this GPU: drain it, then nvidia-smi -i {gpu.pci_bus_id} -mig 0; "
            "if MIG is intentional: gpucheck verify --skip mig"
        )
        return about.warns("MIG enabled", "disabled", WHY, fix, "mig-enabled")
    return about.passes("MIG disabled")


def _word(on: bool) -> str:
    return "on" if on else "off"


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), query_nvml, evaluate)
