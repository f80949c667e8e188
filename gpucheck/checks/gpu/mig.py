"""MIG: is a GPU divided into instances, or about to be?

Source: nvmlDeviceGetMigMode. Instances have no peer-to-peer access, so multi-GPU training cannot use them: a warning,
because it may be intentional. So is a mode that waits for a reset.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "mig"


@of_each_gpu(NAME, nothing="gpu.no-mig")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    on, pending = gpu.health.mig, gpu.health.mig_pending
    if on is None:
        return not_reported(NAME, facts.nvml, gpu, "nvmlDeviceGetMigMode", what="MIG mode")
    later = "not reported" if pending is None else _word(pending)
    evidence = f"nvmlDeviceGetMigMode: current {_word(on)}, pending {later}"
    subject = about(NAME, gpu, evidence)
    if pending is not None and pending != on:
        seen = f"MIG change pending (now {_word(on)}, {_word(pending)} after reset)"
        return subject.warns("gpu.mig-pending", seen)
    if on:
        return subject.warns("gpu.mig-enabled", "MIG enabled", "disabled")
    return subject.passes("MIG disabled")


def _word(on: bool) -> str:
    return "on" if on else "off"


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), evaluate=evaluate, needs=("nvml",))
