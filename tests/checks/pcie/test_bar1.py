"""The BAR1 window: small where a larger one is possible, and needed."""

import msgspec
import pytest

from gpucheck.checks.pcie import bar1
from gpucheck.model import NvmlGap
from tests.checks.gpu.hosts import ALL_OK, REFUSED, geforce
from tests.checks.judging import SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import h100, p100, reading


def host(*gpus, p2p=ALL_OK, virtual=None, gaps=()):
    nvml = msgspec.structs.replace(reading(*gpus), p2p={"read": p2p}, gaps=gaps)
    return facts(nvml=nvml, system=msgspec.structs.replace(SYSTEM, virtual=virtual))


@pytest.mark.parametrize(
    ("capability", "virtual", "verdict"), [("8.9", None, WARN), ("8.9", "kvm", SKIP), ("7.5", None, SKIP)]
)
def test_a_small_window_is_a_fault_only_where_a_larger_one_is_possible(capability, virtual, verdict):
    """A T4 has no more than 256 MiB, and a virtual machine gets what its host gives."""
    gpus = [msgspec.structs.replace(p100(n), compute_capability=capability, bar1_bytes=256 << 20) for n in range(2)]

    found = judge(bar1, host(*gpus, virtual=virtual))

    assert {(f.verdict, f.cause) for f in found} == {(verdict, "rebar-off" if verdict is WARN else None)}


def test_a_small_window_costs_a_geforce_card_nothing_without_peers_over_pcie():
    """Its copies are staged through the host. A data centre card comes with a large window, whatever it copies over."""
    small = {"bar1_bytes": 256 << 20}
    cards = [msgspec.structs.replace(geforce(n), **small) for n in range(2)]
    boards = [msgspec.structs.replace(h100(n), **small) for n in range(2)]

    assert {f.verdict for f in judge(bar1, host(*cards, p2p=REFUSED))} == {SKIP}
    assert {f.verdict for f in judge(bar1, host(*cards))} == {WARN}
    assert {f.verdict for f in judge(bar1, host(*boards))} == {WARN}


def test_peers_are_read_by_place_and_not_by_the_index_of_nvml():
    """NVML keeps the numbers of the GPUs when it has lost one, and the matrix has no row for that one."""
    cards = [msgspec.structs.replace(geforce(n), bar1_bytes=256 << 20, index=index) for n, index in ((0, 0), (1, 3))]

    assert {f.verdict for f in judge(bar1, host(*cards))} == {WARN}
    assert {f.verdict for f in judge(bar1, host(*cards, p2p=REFUSED))} == {SKIP}


@pytest.mark.parametrize(("code", "verdict"), [(3, SKIP), (13, SKIP), (999, UNKNOWN), (4, UNKNOWN), (None, UNKNOWN)])
def test_a_small_window_is_not_judged_by_peers_that_are_not_known(code, verdict):
    """No answer to the P2P status is not "no peer"."""
    cards = [msgspec.structs.replace(geforce(n), bar1_bytes=256 << 20) for n in range(2)]
    a, b = (card.pci_bus_id for card in cards)
    gaps = tuple(
        NvmlGap(call="nvmlDeviceGetP2PStatus", subject=f"pair:{pair}", code=code, name="Refused")
        for pair in (f"{a}-{b}", f"{b}-{a}")
        if code is not None
    )

    assert {f.verdict for f in judge(bar1, host(*cards, p2p=((None, None), (None, None)), gaps=gaps))} == {verdict}


def test_a_small_window_of_a_gpu_without_a_compute_capability_is_unknown():
    """Neither NVML nor the table reports what the card should have."""
    card = msgspec.structs.replace(p100(0), device_id="ffff", compute_capability=None, bar1_bytes=256 << 20)

    (finding,) = judge(bar1, host(card))

    assert (finding.verdict, finding.seen) == (UNKNOWN, None)
