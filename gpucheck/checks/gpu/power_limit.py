"""Power limit: is the power limit of every GPU at the factory default?

Sources: nvmlDeviceGetPowerManagementLimit against nvmlDeviceGetPowerManagementDefaultLimit. One limited GPU makes every
rank of a job wait.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "power-limit"
CALLS = ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
# NVML reports milliwatts; a limit within a watt of the default is the default.
TOLERANCE_W = 1.0


@of_each_gpu(NAME, nothing="gpu.no-power-limit")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    limit, default = gpu.health.power_limit_w, gpu.health.power_default_w
    if limit is None or default is None:
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="power limit")
    least, most = gpu.health.power_min_w, gpu.health.power_max_w
    allowed = "allowed range not reported" if None in (least, most) else f"allowed {least:g} to {most:g} W"
    subject = about(NAME, gpu, f"limit {limit:g} W, default {default:g} W, {allowed}", unit="W")
    if limit <= 0 or default <= 0:
        return subject.unknown("gpu.power-limit-unknown", limit_w=limit, default_w=default)
    if limit >= default - TOLERANCE_W:
        return subject.passes(limit)
    percent = round(100 * limit / default)
    return subject.warns("gpu.power-limit-lowered", limit, default, percent=percent, default_w=default)


CHECK = Check(
    NAME,
    frozenset({"hardware", "settings", "quick"}),
    evaluate=evaluate,
    needs=("nvml",),
    thresholds=(f"WARN more than {TOLERANCE_W:g} W below the default",),
)
