"""What holds a clock, whom, and whether it is the GPU's own reason."""

import pytest
from msgspec.structs import replace

from gpucheck.compute.evaluation import evaluate
from gpucheck.model import Verdict
from gpucheck.model.compute import Sample
from tests.compute.machines import device


def held(number, *reasons, mhz=1800.0, part=1.0):
    """A GPU whose clock is held in this part of its readings."""
    made = device(number, mhz=mhz)
    count = round(part * 40)
    samples = [
        Sample(at=float(at), sm_clock_mhz=mhz, temperature_c=88, reasons=reasons if at < count else ())
        for at in range(40)
    ]
    return replace(made, traces=tuple(samples))


def clocks(*devices):
    return [f for f in evaluate(devices) if f.check == "compute-clocks"]


@pytest.mark.parametrize(
    ("reason", "verdict", "code"),
    [
        ("hw-power-brake", Verdict.FAIL, "compute.clock-power-brake"),
        ("hw-thermal", Verdict.FAIL, "compute.clock-too-hot"),
        ("hw-slowdown", Verdict.FAIL, "compute.clock-slowdown"),
        ("sw-thermal", Verdict.WARN, "compute.clock-heat-limit"),
    ],
)
def test_a_reason_of_its_own_is_named(reason, verdict, code):
    (finding,) = clocks(held(0, reason), device(1), device(2))

    assert (finding.verdict, finding.code) == (verdict, code)
    assert (finding.cause, finding.confidence) == ("throttled", "certain")
    assert finding.subject == f"gpu:{device(0).bus_id}"


LOWERED = replace(held(0, "sw-power-cap", mhz=1500.0), power_limit_w=500.0)
SET = replace(held(0, "app-clocks", mhz=800.0), application_clock_mhz=800, default_application_clock_mhz=1980)


@pytest.mark.parametrize(
    ("slow", "verdict", "cause", "code"),
    [
        (held(0, "sw-thermal", mhz=1400.0), Verdict.FAIL, "throttled", "compute.clock-heat-limit"),
        (held(0, "sw-power-cap"), Verdict.PASS, None, None),  # at the default limit
        (LOWERED, Verdict.WARN, "power-limit-lowered", "compute.power-limit-holds-clock"),
        (replace(held(0), power_limit_w=690.0), Verdict.PASS, None, None),  # a lower limit that holds nothing
        (SET, Verdict.WARN, "clock-limited", "compute.application-clock-lowered"),
        (replace(held(0, mhz=1400.0), licensed=False), Verdict.WARN, "vgpu-unlicensed", "compute.clock-unlicensed"),
        (held(0, "hw-slowdown", part=1 / 40), Verdict.PASS, None, None),  # one reading, at a change of load
    ],
)
def test_what_holds_a_clock_is_named_if_it_is_not_normal(slow, verdict, cause, code):
    (finding,) = clocks(slow, device(1), device(2))

    assert (finding.verdict, finding.cause, finding.code) == (verdict, cause, code)


def test_clocks_that_were_not_read_are_unknown():
    (finding,) = clocks(replace(device(0), traces=()), replace(device(1), traces=()))

    assert finding.verdict is Verdict.UNKNOWN
