"""ACS redirection between GPUs, and between a GPU and its network card."""

import pytest

from gpucheck.checks.pcie import acs
from gpucheck.model import AcsControl, PciDevice
from gpucheck.topology.pcie.acs import bridges_between, redirects
from tests.checks.judging import PASS, WARN, codes, judge
from tests.checks.pcie.trees import DOWN0, DOWN1, ROOT, UP, host, tree


@pytest.mark.parametrize(
    ("control", "verdict"), [(0x04, WARN), (0x08, WARN), (0x20, WARN), (0x1D, WARN), (0x01, PASS), (0x43, PASS)]
)
def test_only_bits_that_redirect_count(control, verdict):
    """Source validation, translation blocking and direct translated P2P reroute nothing."""
    (finding,) = judge(acs, host(tree(down1={"acs": AcsControl(capability=0x7F, control=control)})))

    assert finding.verdict is verdict
    assert finding.cause == ("acs-redirect" if verdict is WARN else None)


def card(bus_id, down, **more):
    fields = {"infiniband_names": ("mlx5_0",), "net_names": ("ibp1s0",)}
    return PciDevice(
        bus_id=bus_id, vendor_id="15b3", device_id="1021", class_id="020700", path=(ROOT, UP, down), **(fields | more)
    )


REDIRECTING = AcsControl(capability=0x7F, control=0x1D)


def gpu_and_card(**more):
    """A GPU and a network card below one switch, as on HGX boards; the GPU's own port redirects."""
    root, up, down0, down1, one, _ = tree(down0={"acs": REDIRECTING})
    return root, up, down0, down1, one, card("0000:04:00.0", DOWN1, **more)


BOTH = (*tree(down0={"acs": REDIRECTING}, down1={"acs": REDIRECTING}), card("0000:05:00.0", DOWN1))


@pytest.mark.parametrize(
    ("pci", "seen", "peers", "rdma"),
    [
        (gpu_and_card(), "ACS redirect on at 1 PCIe bridge", [], [DOWN0]),
        (BOTH, "ACS redirect on at 2 PCIe bridges", [DOWN0, DOWN1], [DOWN0, DOWN1]),
    ],
    ids=["network-card", "both"],
)
def test_acs_redirection_costs_peer_copies_or_gpudirect_rdma(pci, seen, peers, rdma):
    """One finding for all traffic, whose command has every redirecting bridge."""
    between = bridges_between(pci)
    (finding,) = judge(acs, host(pci))

    assert (finding.verdict, finding.cause, finding.seen) == (WARN, "acs-redirect", seen)
    assert [bridge.bus_id for bridge in between.gpus if redirects(bridge)] == peers
    assert [bridge.bus_id for bridge in between.rdma if redirects(bridge)] == rdma
    assert f"pci=disable_acs_redir={';'.join(rdma)}" in finding.fix


HIDDEN = {"acs": None, "config_readable": False}


@pytest.mark.parametrize(
    ("pci", "code"),
    [
        (gpu_and_card(infiniband_names=()), "pcie.acs-no-shared-switch"),
        # Traffic of a pair does not get above the switch that both share.
        (tree(root={"acs": AcsControl(capability=0x5F, control=0x1D)}), None),
        # Registers that only root may read.
        (tree(down0=HIDDEN, down1=HIDDEN), "pcie.acs-needs-root"),
    ],
)
def test_bridges_that_do_not_concern_a_pair_or_cannot_be_read(pci, code):
    assert codes(acs, host(pci)) == [code]
