"""Numbers that scatter as real ones do, measured without a GPU and judged: no false alarm, no loss hidden."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.diagnose import diagnose
from gpucheck.model import Verdict, worst
from tests.measure.benches import EIGHT_A100, EIGHT_NVSWITCH, TWO_PCIE, fault

pytestmark = pytest.mark.slow
BAD = (Verdict.WARN, Verdict.FAIL)


def verdict(bench, *faults, depth="default"):
    return worst(finding.verdict for finding in diagnose(bench.seen(*faults, depth=depth)))


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
@pytest.mark.parametrize("depth", ["quick", "default", "full"])
def test_a_healthy_machine_passes(bench, depth):
    assert verdict(bench, depth=depth) is Verdict.PASS


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_three_percent_noise_fails_nothing(seed):
    for bench in (TWO_PCIE, EIGHT_NVSWITCH):
        assert verdict(bench, fault("copy-noise", percent=3, seed=seed), depth="quick") is Verdict.PASS


@pytest.mark.parametrize("slow", [fault("p2p-slow-direction", percent=30), fault("p2p-slow", 0, 1, percent=40)])
def test_two_runs_of_a_fault_are_equal_in_code_subject_and_values(slow):
    """What was measured differs, and is in seen and in the evidence."""
    one, other = (
        [f for f in diagnose(TWO_PCIE.seen(fault("copy-noise", percent=2, seed=seed), slow)) if f.verdict in BAD]
        for seed in (1, 2)
    )

    assert [(f.code, f.subject, f.values) for f in one] == [(f.code, f.subject, f.values) for f in other]
    assert one
    assert one[0].evidence != other[0].evidence


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), a=st.integers(0, 7), step=st.integers(1, 7))
def test_three_percent_noise_hides_no_loss_of_thirty_percent(seed, a, step):
    noise = fault("copy-noise", percent=3, seed=seed)

    assert verdict(EIGHT_NVSWITCH, noise, fault("p2p-slow", a, (a + step) % 8, percent=30), depth="quick") in BAD
    assert verdict(TWO_PCIE, noise, fault("p2p-slow-direction", percent=30), depth="quick") in BAD


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_three_percent_noise_hides_no_half_duplex(seed):
    noise = fault("copy-noise", percent=3, seed=seed)

    assert verdict(TWO_PCIE, noise) is Verdict.PASS
    assert verdict(TWO_PCIE, noise, fault("p2p-half-duplex")) in BAD


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), percent=st.integers(0, 2))
def test_a_fabric_that_loses_both_ways_at_once_is_healthy(seed, percent):
    """An A100 that sends and receives keeps 77 % of its rate: as a ring, every pair would look low."""
    assert verdict(EIGHT_A100, fault("copy-noise", percent=percent, seed=seed)) is Verdict.PASS


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000), a=st.integers(0, 7), step=st.integers(1, 7))
def test_such_a_fabric_hides_no_slow_direction_and_no_slow_gpu(seed, a, step):
    noise = fault("copy-noise", percent=2, seed=seed)
    b = (a + step) % 8
    way = diagnose(EIGHT_A100.seen(noise, fault("p2p-slow-direction", a, b, percent=30)))
    one = diagnose(
        EIGHT_A100.seen(noise, *(fault("p2p-slow", a, other, percent=30) for other in range(8) if other != a))
    )

    bus = [gpu.pci_bus_id for gpu in EIGHT_A100.gpus]
    named = {finding.subject for finding in way if finding.verdict in BAD and finding.check == "p2p-bandwidth"}
    assert named == {f"pair:{bus[min(a, b)]}-{bus[max(a, b)]}"}
    named = {finding.subject for finding in one if finding.verdict in BAD and finding.check == "p2p-bandwidth"}
    assert named == {f"gpu:{bus[a]}"}
