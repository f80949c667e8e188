"""Throttling: does heat, a power brake or the board itself lower the clocks of a GPU?

Source: nvmlDeviceGetCurrentClocksEventReasons. The software power cap is normal under full load, idle and application
clocks are settings; hardware slowdown, hardware thermal slowdown and the power brake are not.
"""

from typing import NamedTuple

from gpucheck.checks._nvml import evaluate_each_gpu, not_reported, query_nvml
from gpucheck.model import Check, Finding, Gpu, Health, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "throttle"
# The second name is that of drivers before 535.
CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
# Degrees below the hardware's own limit at which a GPU is close to it.
MARGIN_C = 5


class _Reason(NamedTuple):
    why: str
    fix: str


POWER = "check the power supplies, the power cables and the chassis' power brake signal"
HEAT = "check airflow, fans and dust"
HARDWARE = {
    "hw-power-brake": _Reason("An external power brake (power supply or chassis) cuts the clocks.", POWER),
    "hw-thermal": _Reason("The hardware halves the clocks because the GPU is too hot.", HEAT),
    "hw-slowdown": _Reason(
        "The hardware halves the clocks: heat, power brake or voltage.", f"{HEAT}; {POWER.removeprefix('check ')}"
    ),
}


@evaluate_each_gpu(NAME, nothing="no GPU of this host reports clock event reasons")
def evaluate(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    health = gpu.health
    if health.clocks_event_reasons is None:
        return not_reported(NAME, nvml, gpu, *CALLS, what="clock event reasons")
    reasons = ", ".join(health.clocks_event_reasons) or "none"
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=_evidence(health, reasons))
    seen, more = f"clock event reasons {reasons}", f"nvidia-smi -q -d PERFORMANCE -i {gpu.pci_bus_id}"
    for reason, (why, fix) in HARDWARE.items():
        if reason in health.clocks_event_reasons:
            return about.fails(seen, "no hardware slowdown", why, f"{fix}; {more}", "throttled")
    if "sw-thermal" in health.clocks_event_reasons:
        why = "The driver lowers the clocks because the GPU or its memory is near its temperature limit."
        return about.warns(seen, "no thermal slowdown", why, f"{HEAT}; {more}", "throttled")
    margin = health.temperature_margin_c
    if margin is not None and margin <= MARGIN_C:
        hot = "" if health.temperature_c is None else f"{health.temperature_c} C, "
        why = "The hardware lowers the clocks at its slowdown temperature."
        seen, wanted = f"{hot}{max(margin, 0)} C below slowdown", f"more than {MARGIN_C} C below slowdown"
        return about.warns(seen, wanted, why, f"{HEAT}; {more}", "throttled", "likely")
    return about.passes(seen)


def _evidence(health: Health, reasons: str) -> tuple[str, ...]:
    def number(value: int | None, unit: str) -> str:
        return f"{value} {unit}" if value else "not reported"

    return (
        f"{CALLS[0]}: {reasons}",
        f"core temperature {number(health.temperature_c, 'C')}, "
        f"hardware slowdown at {number(health.temperature_slowdown_c, 'C')}, {_left(health)}",
        f"SM clock {number(health.sm_clock_mhz, 'MHz')}, maximum {number(health.max_sm_clock_mhz, 'MHz')}",
    )


def _left(health: Health) -> str:
    margin = health.temperature_margin_c
    return "margin not reported" if margin is None else f"{margin} C left"


CHECK = Check(NAME, frozenset({"hardware", "quick"}), query_nvml, evaluate)
