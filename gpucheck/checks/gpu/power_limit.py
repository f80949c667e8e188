"""Power limit: is the power limit of every GPU at the factory default?

Sources: nvmlDeviceGetPowerManagementLimit against nvmlDeviceGetPowerManagementDefaultLimit. One limited GPU makes every
rank of a job wait.
"""

from gpucheck.checks._nvml import evaluate_each_gpu, not_reported, query_nvml
from gpucheck.model import Check, Finding, Gpu, Health, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "power-limit"
CALLS = ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
# NVML reports milliwatts; a limit within a watt of the default is the default.
TOLERANCE_W = 1.0


@evaluate_each_gpu(NAME, nothing="no GPU of this host has a power limit")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    limit, default = gpu.health.power_limit_w, gpu.health.power_default_w
    if limit is None or default is None:
        return not_reported(NAME, nvml, gpu, *CALLS, what="power limit")
    evidence = f"limit {limit:g} W, default {default:g} W, {_range(gpu.health)}"
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", unit="W", evidence=(evidence,))
    if limit <= 0 or default <= 0:
        why = f"power limit unknown: NVML reported {limit:g} W, default {default:g} W"
        return about.unknown(why, f"nvidia-smi -i {gpu.pci_bus_id} -q -d POWER")
    if limit >= default - TOLERANCE_W:
        return about.passes(limit)
    why = f"The power limit is at {limit / default:.0%} of its default, which lowers the clocks under load."
    fix = f"nvidia-smi -i {gpu.pci_bus_id} -pl {default:g}, if the limit is not intentional"
    return about.warns(limit, default, why, fix, "power-limit-lowered")


def _range(health: Health) -> str:
    if health.power_min_w is None or health.power_max_w is None:
        return "allowed range not reported"
    return f"allowed {health.power_min_w:g} to {health.power_max_w:g} W"


CHECK = Check(NAME, frozenset({"hardware", "settings", "quick"}), query_nvml, evaluate)
