"""Numbers that scatter as real ones do, measured without a GPU and judged: no false alarm, no loss hidden."""

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.model import Verdict, worst
from tests.measure.benches import EIGHT_A100, EIGHT_NVSWITCH, TWO_PCIE, fault
from tests.shared import sampled

pytestmark = pytest.mark.slow
BAD = (Verdict.WARN, Verdict.FAIL)
SEEDS = sampled(range(10), (0, 1))


def verdict(bench, *faults, depth="default"):
    return worst(finding.verdict for finding in diagnose(bench.seen(*faults, depth=depth)))


def noise(seed, percent=3):
    return fault("copy-noise", percent=percent, seed=seed)


def pair(seed):
    """Two of eight GPUs."""
    return seed % 8, (seed + 1 + seed // 8 + seed % 7) % 8


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
@pytest.mark.parametrize("depth", ["quick", "default", "full"])
def test_a_healthy_machine_passes(bench, depth):
    assert verdict(bench, depth=depth) is Verdict.PASS


@pytest.mark.parametrize("slow", [fault("p2p-slow-direction", percent=30), fault("p2p-slow", 0, 1, percent=40)])
def test_two_runs_of_a_fault_are_equal_in_code_subject_and_values(slow):
    """What was measured differs, and is in seen and in the evidence."""
    one, other = ([f for f in diagnose(TWO_PCIE.seen(noise(seed, 2), slow)) if f.verdict in BAD] for seed in (1, 2))

    assert [(f.code, f.subject, f.values) for f in one] == [(f.code, f.subject, f.values) for f in other]
    assert one
    assert one[0].evidence != other[0].evidence


@pytest.mark.parametrize("seed", SEEDS)
def test_three_percent_noise_fails_nothing_and_hides_no_loss_of_thirty_percent(seed):
    for bench in (TWO_PCIE, EIGHT_NVSWITCH):
        assert verdict(bench, noise(seed), depth="quick") is Verdict.PASS
    assert verdict(EIGHT_NVSWITCH, noise(seed), fault("p2p-slow", *pair(seed), percent=30), depth="quick") in BAD
    assert verdict(TWO_PCIE, noise(seed), fault("p2p-slow-direction", percent=30), depth="quick") in BAD


@pytest.mark.parametrize("seed", SEEDS)
def test_three_percent_noise_hides_no_half_duplex(seed):
    assert verdict(TWO_PCIE, noise(seed)) is Verdict.PASS
    assert verdict(TWO_PCIE, noise(seed), fault("p2p-half-duplex")) in BAD


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fabric_that_loses_both_ways_at_once_is_healthy_and_hides_no_slow_direction_and_no_slow_gpu(seed):
    """An A100 that sends and receives keeps 77 % of its rate: as a ring, every pair would look low."""
    a, b = pair(seed)
    bus = [gpu.pci_bus_id for gpu in EIGHT_A100.gpus]
    of_one = [fault("p2p-slow", a, other, percent=30) for other in range(8) if other != a]

    assert verdict(EIGHT_A100, noise(seed, seed % 3)) is Verdict.PASS
    for faults, subject in (
        ([fault("p2p-slow-direction", a, b, percent=30)], f"pair:{bus[min(a, b)]}-{bus[max(a, b)]}"),
        (of_one, f"gpu:{bus[a]}"),
    ):
        found = diagnose(EIGHT_A100.seen(noise(seed, 2), *faults))
        assert {f.subject for f in found if f.verdict in BAD and f.check == "p2p-bandwidth"} == {subject}
