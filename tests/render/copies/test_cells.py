"""The verdict decides what a cell looks like, and not its part of what was expected."""

import msgspec
import pytest

from gpucheck.model import Verdict
from gpucheck.model.bandwidth import Measured, MeasuredDevice, MeasuredPair
from gpucheck.model.measurements import copies_of
from gpucheck.render.subjects.copies import section, verdicts
from gpucheck.render.write.html import heat
from tests.render.reports import finding

BUS = ("0000:10:00.0", "0000:20:00.0", "0000:30:00.0")
DEVICES = [MeasuredDevice(index=i, name="H100", bus_id=bus_id) for i, bus_id in enumerate(BUS)]


def pairs(rates, cls="NV18", low=80.0):
    measured = {"mad_percent": 0.1, "slowest_gb_s": 1.0, "fastest_gb_s": 1.0, "samples": 9, "size_bytes": 1}
    return [
        MeasuredPair(
            src=i, dst=j, cls=cls, measured=Measured(gb_s=rate, **measured), expected_gb_s=100.0, low_gb_s=low,
        )
        for (i, j), rate in rates.items()
    ]  # fmt: skip


def matrix_of(rates):
    return [[rates.get((i, j)) for j in range(3)] for i in range(3)]


def cells(rates, *findings, cls="NV18", low=80.0, name="p2p_uni_gb_s"):
    found = verdicts(name, matrix_of(rates), pairs(rates, cls, low), DEVICES, findings)
    return {place: found[place[0]][place[1]] for place in rates}


def about_pair(verdict, check="p2p-bandwidth"):
    return finding(check, f"pair:{BUS[0]}-{BUS[1]}", verdict)


@pytest.mark.parametrize("rate", [85.0, 99.0, 120.0])
@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.WARN])
def test_a_finding_about_the_pair_decides_whatever_its_rate(rate, verdict):
    found = cells({(0, 1): rate, (1, 0): rate, (0, 2): rate}, about_pair(verdict))

    assert found == {(0, 1): verdict, (1, 0): verdict, (0, 2): Verdict.PASS}


def test_below_the_low_end_without_a_finding_has_a_mark_and_no_other_verdict():
    rates = {(0, 1): 79.0, (0, 2): 81.0, (1, 2): 90.0}
    numbers = {"devices": DEVICES, "pairs": pairs(rates), "matrices": {"p2p_uni_gb_s": matrix_of(rates)}}
    copied = copies_of({"p2p": msgspec.to_builtins(numbers)})
    ((matrices,), *_) = section(copied, ()).blocks[0].parts
    shown = heat(matrices.matrices[0])

    assert set(cells(rates).values()) == {Verdict.PASS}
    assert shown.rows[0][1] == [("", "none"), ("\u219379.0", "pass low"), ("81.0", "pass")]
    assert ("low", "\u2193 below the low end of what is expected") in shown.legend


def test_below_the_low_end_fails_with_the_host():
    assert cells({(0, 1): 79.0, (0, 2): 81.0}, finding("p2p-bandwidth", "host")) == {
        (0, 1): Verdict.FAIL,
        (0, 2): Verdict.PASS,
    }


def test_a_far_lower_rate_without_an_expectation_has_no_verdict():
    assert set(cells({(0, 1): 1.0, (0, 2): 100.0}, low=None).values()) == {Verdict.SKIP}
    assert set(cells({(0, 1): 1.0, (0, 2): 9.0}, name="p2p_latency_us").values()) == {Verdict.SKIP}


def test_wrong_data_fails_at_full_speed():
    assert cells({(0, 1): 100.0}, about_pair(Verdict.FAIL, "p2p-integrity")) == {(0, 1): Verdict.FAIL}


def test_a_narrow_pcie_link_does_not_color_nvlink_copies():
    narrow = finding("p2p-bandwidth", f"gpu:{BUS[1]}")
    links = finding("nvlink-links", f"gpu:{BUS[1]}")
    rates = {(0, 1): 100.0, (0, 2): 100.0}

    assert cells(rates, narrow) == {(0, 1): Verdict.PASS, (0, 2): Verdict.PASS}
    assert cells(rates, narrow, cls="PIX") == {(0, 1): Verdict.FAIL, (0, 2): Verdict.PASS}
    assert cells(rates | {(0, 1): 70.0}, links) == {(0, 1): Verdict.FAIL, (0, 2): Verdict.PASS}


def test_copies_in_the_healthy_range_are_not_marked_for_a_lost_link_of_their_gpu():
    """The finding about the copies passes: 17 of 18 links carry 94 % of the rate."""
    links = finding("nvlink-links", f"gpu:{BUS[1]}")

    assert cells({(0, 1): 94.0, (1, 0): 94.0}, links) == {(0, 1): Verdict.PASS, (1, 0): Verdict.PASS}
