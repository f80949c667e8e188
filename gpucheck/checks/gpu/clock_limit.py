"""Clock limit: are the application clocks of every GPU at the factory default?

Sources: nvmlDeviceGetApplicationsClock against nvmlDeviceGetDefaultApplicationsClock, graphics. The default may be
below the product's maximum, which is therefore no reference. Clocks locked with nvidia-smi -lgc cannot be read back:
they show as a low clock under load, with the throttle reasons.
"""

from gpucheck.checks._nvml import about, gaps_of, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "clock-limit"
CALLS = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")


@of_each_gpu(NAME, nothing="gpu.no-application-clocks")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    """One finding for each GPU that has application clocks; GeForce boards and newer drivers report none."""
    clock, default = gpu.health.application_clock_mhz, gpu.health.default_application_clock_mhz
    if clock is None or default is None:
        # A recording made before they were queried has neither clock nor a failed call.
        queried = clock is not default or any(gaps_of(facts.nvml, gpu, *CALLS))
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="application clock") if queried else None
    most = f"{gpu.health.max_sm_clock_mhz} MHz" if gpu.health.max_sm_clock_mhz else "not reported"
    subject = about(NAME, gpu, f"application clock {clock} MHz, default {default} MHz, maximum {most}", unit="MHz")
    if clock <= 0 or default <= 0:
        return subject.unknown("gpu.clock-unknown", clock_mhz=clock, default_mhz=default)
    if clock >= default:
        return subject.passes(clock)
    return subject.warns("gpu.clock-limited", clock, default, percent=round(100 * clock / default))


CHECK = Check(NAME, frozenset({"hardware", "settings", "quick"}), evaluate=evaluate, needs=("nvml",))
