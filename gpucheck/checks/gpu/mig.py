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
    now, later = ({True: "on", False: "off", None: "not reported"}[state] for state in (on, pending))
    subject = about(NAME, gpu, f"nvmlDeviceGetMigMode: current {now}, pending {later}")
    if pending is not None and pending != on:
        return subject.warns("gpu.mig-pending", f"MIG change pending (now {now}, {later} after reset)")
    if on:
        return subject.warns("gpu.mig-enabled", "MIG enabled", "disabled")
    return subject.passes("MIG disabled")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), evaluate=evaluate, needs=("nvml",))
