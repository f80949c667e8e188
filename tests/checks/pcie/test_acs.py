"""ACS redirection between GPUs, and between a GPU and its network card."""

import pytest

from gpucheck.checks.pcie import acs
from gpucheck.model import AcsControl, PciDevice
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import DOWN0, DOWN1, ROOT, UP, host, tree


@pytest.mark.parametrize(
    ("control", "verdict"), [(0x04, WARN), (0x08, WARN), (0x20, WARN), (0x1D, WARN), (0x01, PASS), (0x43, PASS)]
)
def test_only_bits_that_redirect_count(control, verdict):
    """Source validation, translation blocking and direct translated P2P reroute nothing."""
    (finding,) = judge(acs, host(tree(down1={"acs": AcsControl(capability=0x7F, control=control)})))

    assert finding.verdict is verdict
    assert (finding.cause, DOWN1 in finding.fix) == (("acs-redirect", True) if verdict is WARN else (None, False))


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


def test_acs_redirection_between_a_gpu_and_its_network_card_costs_gpudirect_rdma():
    (finding,) = judge(acs, host(gpu_and_card()))

    assert (finding.verdict, finding.cause) == (WARN, "acs-redirect")
    assert finding.seen == "ACS redirect on at 1 PCIe bridge"
    assert "GPUDirect RDMA" in finding.why
    assert "GPU peer copies" not in finding.why


def test_network_card_without_rdma_is_no_peer_of_a_gpu():
    (finding,) = judge(acs, host(gpu_and_card(infiniband_names=())))

    assert (finding.verdict, finding.cause) == (SKIP, None)


def test_acs_redirection_of_both_kinds_of_traffic_is_one_finding():
    pci = (*tree(down0={"acs": REDIRECTING}, down1={"acs": REDIRECTING}), card("0000:05:00.0", DOWN1))
    (finding,) = judge(acs, host(pci))

    assert finding.seen == "ACS redirect on at 2 PCIe bridges"
    assert "GPU peer copies and GPUDirect RDMA" in finding.why
    assert f"'pci=disable_acs_redir={DOWN0};{DOWN1}'" in finding.fix


def test_acs_above_the_shared_switch_does_not_concern_the_pair():
    """Their traffic never gets there."""
    (finding,) = judge(acs, host(tree(root={"acs": AcsControl(capability=0x5F, control=0x1D)})))

    assert finding.verdict is PASS


def test_registers_that_only_root_may_read_are_unknown():
    """With the command that tells."""
    hidden = {"acs": None, "config_readable": False}
    (finding,) = judge(acs, host(tree(down0=hidden, down1=hidden)))

    assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo gpucheck verify --only acs")
