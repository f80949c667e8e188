"""Throttling: does heat, a power brake or the board itself hold the clocks of a GPU down?

Source: nvmlDeviceGetCurrentClocksEventReasons. The software power cap is normal under full load, idle and application
clocks are settings; hardware slowdown, hardware thermal slowdown and the power brake are not.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "throttle"
# Degrees below the hardware's own limit at which a GPU is worth a look.
MARGIN_C = 5
HARDWARE = {
    "hw-power-brake": "an external power brake (power supply or chassis) cuts the clocks to a fraction",
    "hw-thermal": "the hardware halves the clocks because the GPU is too hot",
    "hw-slowdown": "the hardware halves the clocks: heat, power brake or voltage",
}
FIX = "check airflow, fans, power supplies and cabling; nvidia-smi -q -d PERFORMANCE -i {}"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU."""
    yield from each_gpu(NAME, nvml, lambda gpu: _judge(nvml, gpu), nothing="no GPU of this host tells why it throttles")


def _judge(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    health = gpu.health
    if health.clocks_event_reasons is None:
        return not_reported(NAME, nvml, gpu, "nvmlDeviceGetCurrentClocksEventReasons")
    reasons = ", ".join(health.clocks_event_reasons) or "none"
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        evidence=(
            f"nvmlDeviceGetCurrentClocksEventReasons: {reasons}",
            f"core {health.temperature_c} C, hardware slows down at {health.temperature_slowdown_c} C",
            f"SM clock {health.sm_clock_mhz} of {health.max_sm_clock_mhz} MHz",
        ),
    )
    fix = FIX.format(gpu.pci_bus_id)
    for reason, why in HARDWARE.items():
        if reason in health.clocks_event_reasons:
            return about.fails(reasons, "no hardware slowdown", why, fix, "throttled")
    if "sw-thermal" in health.clocks_event_reasons:
        why = "the driver lowers the clocks because the GPU or its memory is near its limit"
        return about.warns(reasons, "no thermal slowdown", why, fix, "throttled")
    hot, limit = health.temperature_c, health.temperature_slowdown_c
    if hot is not None and limit is not None and hot >= limit - MARGIN_C:
        why = f"the hardware slows the GPU down at {limit} C"
        return about.warns(f"{hot} C", f"below {limit - MARGIN_C} C", why, fix, "throttled", "likely")
    return about.passes(reasons, "no hardware slowdown")


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
