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
    ("reason", "verdict"),
    [
        ("hw-power-brake", Verdict.FAIL),
        ("hw-thermal", Verdict.FAIL),
        ("hw-slowdown", Verdict.FAIL),
        ("sw-thermal", Verdict.WARN),
    ],
)
def test_a_reason_of_its_own_is_named(reason, verdict):
    (finding,) = clocks(held(0, reason), device(1), device(2))

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, "throttled", "certain")
    assert finding.subject == f"gpu:{device(0).bus_id}"


def test_heat_that_costs_much_of_the_clock_fails_and_is_compared_with_peers():
    (finding,) = clocks(held(0, "sw-thermal", mhz=1400.0), device(1), device(2))

    assert finding.verdict is Verdict.FAIL
    assert "22% below that of the other 2 GPUs" in finding.why


def test_a_power_cap_at_the_default_limit_is_normal():
    (finding,) = clocks(held(0, "sw-power-cap"), device(1))

    assert finding.verdict is Verdict.PASS


def test_a_lowered_limit_is_the_reason_where_the_cap_holds():
    (finding,) = clocks(replace(held(0, "sw-power-cap", mhz=1500.0), power_limit_w=500.0), device(1))

    assert (finding.cause, finding.verdict) == ("power-limit-lowered", Verdict.WARN)
    assert "-pl 700" in finding.fix


def test_a_lowered_limit_that_holds_nothing_is_no_finding():
    (finding,) = clocks(replace(held(0), power_limit_w=690.0), device(1))

    assert finding.verdict is Verdict.PASS


def test_an_application_clock_below_its_default_is_named():
    slow = replace(held(0, "app-clocks", mhz=800.0), application_clock_mhz=800, default_application_clock_mhz=1980)
    (finding,) = clocks(slow, device(1))

    assert finding.cause == "clock-limited"


def test_one_reading_at_a_change_of_load_is_no_throttling():
    (finding,) = clocks(held(0, "hw-slowdown", part=1 / 40), device(1))

    assert finding.verdict is Verdict.PASS


def test_clocks_that_were_not_read_are_unknown():
    (finding,) = clocks(replace(device(0), traces=()), replace(device(1), traces=()))

    assert finding.verdict is Verdict.UNKNOWN
