"""Clock limit: may every GPU clock as high as its maker meant it to?

Sources: nvmlDeviceGetApplicationsClock against nvmlDeviceGetDefaultApplicationsClock, graphics. The default may be
below the product's maximum, so that is no yardstick. Clocks locked with nvidia-smi -lgc cannot be read back: they show
as a low clock under load, beside the throttle reasons.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "clock-limit"
CALLS = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding for each GPU that has application clocks; GeForce boards and newer drivers tell none."""
    nothing = "no GPU of this host has application clocks"
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing=nothing)


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    clock, default = gpu.health.application_clock_mhz, gpu.health.default_application_clock_mhz
    if clock is None or default is None:
        # A recording made before they were asked has neither clocks nor a refusal.
        asked = isinstance(nvml, NvmlReading) and any(gap.call in CALLS for gap in nvml.gaps)
        return not_reported(NAME, nvml, gpu, *CALLS) if asked else None
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        unit="MHz",
        evidence=(f"application clock {clock} MHz, default {default} MHz, maximum {gpu.health.max_sm_clock_mhz} MHz",),
    )
    if clock >= default:
        return about.passes(clock, default)
    why = f"somebody set the application clock to {clock / default:.0%} of the default, so every kernel takes longer"
    fix = f"nvidia-smi -i {gpu.pci_bus_id} -rac, unless the site means it"
    return about.warns(clock, default, why, fix, "clock-limited")


CHECK = Check(NAME, frozenset({"hardware", "settings", "quick"}), probe, evaluate)
