"""Link rates: known ones exactly, unknown ones never assumed."""

import pytest

from gpucheck import knowledge
from gpucheck.knowledge import links


@pytest.mark.parametrize(
    ("generation", "width", "rate"), [(1, 16, 4.0), (3, 16, 15.75), (4, 8, 15.75), (5, 16, 63.0), (6, 16, 121.0)]
)
def test_pcie_rates_are_those_of_the_specification(generation, width, rate):
    """One direction, after line coding, headers not taken off."""
    assert knowledge.pcie_gb_s(generation, width) == rate


def test_a_pcie_rate_is_lanes_times_signalling_rate_times_coding():
    """The table agrees with arithmetic to its two digits."""
    per_lane = {
        1: 2.5 * 8 / 10,
        2: 5 * 8 / 10,
        3: 8 * 128 / 130,
        4: 16 * 128 / 130,
        5: 32 * 128 / 130,
        6: 64 * 242 / 256,
    }
    for generation, widths in links._links().pcie.gb_s.items():
        for width, rate in widths.items():
            assert rate == pytest.approx(per_lane[generation] / 8 * width, rel=0.02)


@pytest.mark.parametrize(("generation", "width"), [(7, 16), (4, 3), (0, 1)])
def test_a_link_that_does_not_exist_has_no_rate(generation, width):
    with pytest.raises(LookupError, match="PCIe link"):
        knowledge.pcie_gb_s(generation, width)


@pytest.mark.parametrize(
    ("gpu", "rate"), [("6.0", 20.0), ("9.0", 25.0), ("B200", 50.0), ("RTX 3090", 14.0625), ("H100 SXM", 25.0)]
)
def test_nvlink_payload_by_capability_or_name(gpu, rate):
    """Payload of one link in one direction."""
    assert knowledge.nvlink_rate(gpu).gb_s == rate


@pytest.mark.parametrize("gpu", ["8.9", "12.0", "RTX 4090", "Voodoo 2"])
def test_a_gpu_without_nvlink_has_no_rate(gpu):
    with pytest.raises(LookupError):
        knowledge.nvlink_rate(gpu)


def test_intel_host_bridges_cut_peer_traffic():
    """64-byte packets on Intel: only where the path crosses its host bridge."""
    rates = knowledge.healthy_rates()
    assert set(rates.direct_intel) == {"PHB", "NODE", "SYS"}
    assert all(median < rates.direct[cls][0] for cls, median in rates.direct_intel.items())


def test_every_nvlink_generation_in_use_has_factors_for_both_engines():
    for gpu in knowledge.gpus():
        if gpu.nvlink:
            assert 0.5 < knowledge.nvlink_factor(gpu.nvlink.generation, "ce") <= 1
            assert 0.5 < knowledge.nvlink_factor(gpu.nvlink.generation, "sm") <= 1
    with pytest.raises(LookupError):
        knowledge.nvlink_factor(9)


def test_every_kind_of_copy_has_a_possible_median_and_a_spread():
    rates = knowledge.healthy_rates()
    kinds = [
        getattr(rates, name) for name in rates.__struct_fields__ if name not in ("source", "direct_intel", "direct")
    ]
    for median, spread in (*kinds, *rates.direct.values()):
        assert 0.3 < median <= 1
        assert 0 < spread < 0.5
