"""Expected bandwidth is rate x factor of the narrowest hop, and says so."""

import math

import msgspec
import pytest

from gpucheck.model import PcieLink
from gpucheck.topology import Hop, cpu_vendor, expected
from tests.machines import GEN3_X16, GEN5_X16, h100, p100

INTEL, ZEN4 = "intel", "amd"


def hops(*links):
    return [Hop(f"0000:0{n}:00.0", link) for n, link in enumerate(links)]


def answer_of(*pair):
    return expected(*pair) or pytest.fail("no expectation")


@pytest.mark.parametrize(
    ("cls", "links", "cpu", "middle", "spread", "high"),
    [
        ("NV18", (), None, 450 * 0.85, 0.056, 450),
        ("NV17", (), None, 425 * 0.85, 0.056, 425),
        ("NV1", (), None, 20 * 0.91, 0.056, 20),
        ("PIX", (GEN3_X16, GEN3_X16), None, 15.75 * 0.85, 0.058, 15.75),
        ("PXB", (GEN5_X16, GEN3_X16), ZEN4, 15.75 * 0.85, 0.067, 15.75),
        ("PHB", (GEN5_X16,), ZEN4, 63 * 0.78, 0.139, 63),
        ("PHB", (GEN5_X16,), INTEL, 63 * 0.68, 0.139, 63),
        ("NODE", (GEN5_X16,), None, 63 * 0.78, 0.171, 63),
        ("SYS", (GEN5_X16,), ZEN4, 63 * 0.70, 0.36, 63),
        ("SYS", (GEN3_X16,), INTEL, 15.75 * 0.64, 0.36, 15.75),
    ],
)
def test_expected_range(cls, links, cpu, middle, spread, high):
    """The low end is what nineteen of twenty healthy machines reach."""
    gpu = h100 if cls in ("NV17", "NV18") else p100
    answer = answer_of(cls, gpu(0), gpu(1), hops(*links), cpu)

    assert (answer.unidirectional_gb_s, answer.low_gb_s, answer.high_gb_s) == pytest.approx(
        (middle, middle * math.exp(-1.64 * spread), high), abs=0.01
    )


def test_an_idle_link_is_taken_at_its_maximum():
    """An idle GPU lowers its generation; that is no slower path."""
    idle = msgspec.structs.replace(GEN3_X16, generation=1)
    answer = answer_of("PIX", p100(0), p100(1), hops(idle, GEN3_X16))

    assert answer.high_gb_s == 15.75


@pytest.mark.parametrize("cls", [None, "X", "PIX", "SYS", "NV4"])
def test_nothing_is_expected_where_a_rate_is_not_known(cls):
    nameless = msgspec.structs.replace(p100(0), compute_capability="8.9", name="a GPU of tomorrow")

    assert expected(cls, nameless, nameless, hops(GEN3_X16, PcieLink())) is None


CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: 6\nmodel name\t: whatever 9 thing\n\n"


@pytest.mark.parametrize(
    ("vendor", "answer"), [("GenuineIntel", INTEL), ("AuthenticAMD", ZEN4), ("HygonGenuine", "HygonGenuine")]
)
def test_the_cpu_is_read_by_its_vendor(vendor, answer):
    assert cpu_vendor(CPUINFO.format(vendor)) == answer


def test_an_arm_cpu_is_not_taken_for_an_intel_one():
    """It prints no vendor_id. Its host bridge is not known to cut packets."""
    arm = cpu_vendor("processor\t: 0\nCPU implementer\t: 0x41\n")
    answer = answer_of("NODE", p100(0), p100(1), hops(GEN5_X16), arm)

    assert arm == "arm"
    assert answer.unidirectional_gb_s == pytest.approx(63 * 0.78, abs=0.01)
