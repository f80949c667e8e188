"""Throttling: does heat, a power brake or the board itself lower the clocks of a GPU?

Source: nvmlDeviceGetCurrentClocksEventReasons. The software power cap is normal under full load, idle and application
clocks are settings; hardware slowdown, hardware thermal slowdown and the power brake are not.
"""

from collections.abc import Iterator

from gpucheck.checks._case import UNDER_LOAD, Case, Claim
from gpucheck.checks._nvml import about, not_reported, of_each_gpu
from gpucheck.model import Check, Finding, Gpu, Health, Verdict
from gpucheck.model.facts import Facts

NAME = "throttle"
# The second name is that of drivers before 535.
CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
MARGIN_C = 5
HARDWARE = {
    "hw-power-brake": "gpu.power-brake",
    "hw-thermal": "gpu.hardware-thermal-slowdown",
    "hw-slowdown": "gpu.hardware-slowdown",
}


@of_each_gpu(NAME, nothing="gpu.no-clock-event-reasons")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    health = gpu.health
    if health.clocks_event_reasons is None:
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="clock event reasons")
    reasons = ", ".join(health.clocks_event_reasons) or "none"
    margin = health.temperature_margin_c
    subject = about(NAME, gpu, *_evidence(health, reasons))
    seen = f"clock event reasons {reasons}"
    for reason, code in HARDWARE.items():
        if reason in health.clocks_event_reasons:
            return subject.fails(code, seen, "no hardware slowdown")
    if "sw-thermal" in health.clocks_event_reasons:
        return subject.warns("gpu.software-thermal-slowdown", seen, "no thermal slowdown")
    if margin is not None and margin <= MARGIN_C:
        hot = "" if health.temperature_c is None else f"{health.temperature_c} C, "
        seen, wanted = f"{hot}{max(margin, 0)} C below slowdown", f"more than {MARGIN_C} C below slowdown"
        return subject.warns("gpu.near-slowdown-temperature", seen, wanted)
    return subject.passes(seen)


def _evidence(health: Health, reasons: str) -> tuple[str, ...]:
    margin = health.temperature_margin_c
    known = {
        f"core temperature {health.temperature_c} C": health.temperature_c,
        f"hardware slowdown at {health.temperature_slowdown_c} C": health.temperature_slowdown_c,
        f"{margin} C left": margin is not None,
        f"SM clock {health.sm_clock_mhz} MHz": health.sm_clock_mhz,
        f"maximum {health.max_sm_clock_mhz} MHz": health.max_sm_clock_mhz,
    }
    numbers = ", ".join(text for text, value in known.items() if value)
    return (f"clock event reasons: {reasons}", *([numbers] if numbers else []))


def rule(case: Case) -> Iterator[Finding]:
    """GPUs that the hardware slowed down while they copied."""
    for row in case.machine.measured.under_load:
        if words := ", ".join(sorted({*(row.throttled or ())} & HARDWARE.keys())):
            yield Claim(UNDER_LOAD, Verdict.WARN).finding(
                "links.throttled-copying",
                subject=case.machine.gpu_label(row.gpu),
                seen=f"throttled while copying: {words}",
                evidence=(f"clock event reasons: {words}",),
            )


CHECK = Check(
    NAME,
    frozenset({"hardware", "quick"}),
    evaluate=evaluate,
    needs=("nvml",),
    thresholds=(f"WARN at {MARGIN_C} C or less below the hardware's own limit",),
)
