"""Power limit: may every GPU draw what its maker meant it to?

Sources: nvmlDeviceGetPowerManagementLimit against nvmlDeviceGetPowerManagementDefaultLimit. One capped GPU makes every
rank of a job wait.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "power-limit"
# NVML tells milliwatts; a limit within a watt of the default is the default.
TOLERANCE_W = 1.0


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU."""
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing="no GPU of this host has a power limit")


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    limit, default = gpu.health.power_limit_w, gpu.health.power_default_w
    if limit is None or default is None:
        calls = ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
        return not_reported(NAME, nvml, gpu, *calls)
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        unit="W",
        evidence=(
            f"limit {limit:g} W, default {default:g} W, allowed {gpu.health.power_min_w} to {gpu.health.power_max_w} W",
        ),
    )
    if limit >= default - TOLERANCE_W:
        return about.passes(limit, default)
    why = f"somebody lowered the power limit to {limit / default:.0%} of the default, which caps the clocks under load"
    fix = f"nvidia-smi -i {gpu.pci_bus_id} -pl {default:g}, unless the site means it"
    return about.warns(limit, default, why, fix, "power-limit-lowered")


CHECK = Check(NAME, frozenset({"hardware", "settings", "quick"}), probe, evaluate)
