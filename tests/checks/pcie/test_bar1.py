"""The BAR1 window: small where a larger one is possible, and needed."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.pcie import bar1
from gpucheck.model import NvmlGap
from tests.checks.gpu.hosts import ALL_OK, REFUSED, geforce
from tests.checks.judging import codes
from tests.fakes import SYSTEM, facts
from tests.machines import p100, reading

SMALL = 256 << 20


def host(*gpus, p2p=ALL_OK, virtual=None, gaps=()):
    """Two GPUs or one, each with a small window."""
    nvml = replace(reading(*(replace(gpu, bar1_bytes=SMALL) for gpu in gpus)), p2p={"read": p2p}, gaps=gaps)
    return facts(nvml=nvml, system=replace(SYSTEM, virtual=virtual))


def of(capability):
    return replace(p100(0), compute_capability=capability)


CARDS = (geforce(0), geforce(1))
AMPERE = tuple(
    replace(card, name="NVIDIA GeForce RTX 3090", device_id="2204", compute_capability="8.6") for card in CARDS
)
# NVML keeps the numbers of the GPUs when it has lost one, and the matrix has no row for that one.
ONE_LOST = (geforce(0), replace(geforce(1), index=3))


def unknown_peers(code):
    """No answer to the P2P status is not "no peer"."""
    ids = [card.pci_bus_id for card in CARDS]
    gaps = [
        NvmlGap(call="nvmlDeviceGetP2PStatus", subject=f"pair:{'-'.join(p)}", code=code, name="x")
        for p in (ids, ids[::-1])
    ]
    return host(*CARDS, p2p=((None, None), (None, None)), gaps=tuple(gaps) if code else ())


def unknown_links(call, code, gpu):
    """Two cards that NVLinks may join, whose state one of the ends does not report."""
    gap = NvmlGap(call=call, subject=f"gpu:{AMPERE[gpu].pci_bus_id}", code=code, name="x")
    return host(*AMPERE, gaps=(gap,))


@pytest.mark.parametrize("call", ["nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo"])
def test_a_peer_whose_nvlinks_were_not_read_may_need_no_window(call):
    assert set(codes(bar1, unknown_links(call, 2, 1))) == {"nvml.call-failed", "pcie.bar1-peers-unknown"}
    assert set(codes(bar1, unknown_links(call, 3, 0))) == {"pcie.bar1-peers-unknown"}
    no_nvlink = NvmlGap(call=call, subject=f"gpu:{CARDS[1].pci_bus_id}", code=3, name="x")
    assert {*codes(bar1, host(*CARDS, gaps=(no_nvlink,)))} == {"pcie.bar1-small"}


@pytest.mark.parametrize(
    ("host", "code"),
    [
        # A T4 has no more than 256 MiB, and a virtual machine gets what its host gives.
        (host(of("8.9"), virtual="kvm"), "nvml.set-by-the-host"),
        (host(of("7.5")), "pcie.bar1-small-by-design"),
        # Copies of a GeForce are staged through the host without peers over PCIe; a data center GPU needs it anyway.
        (host(*CARDS), "pcie.bar1-small"),
        (host(*CARDS, p2p=REFUSED), "pcie.bar1-no-pcie-peer"),
        (host(*AMPERE), "pcie.bar1-small"),
        (host(*ONE_LOST), "pcie.bar1-small"),
        (host(*ONE_LOST, p2p=REFUSED), "pcie.bar1-no-pcie-peer"),
        (unknown_peers(3), "pcie.bar1-no-peer-access"),
        (unknown_peers(13), "nvml.call-missing"),
        (unknown_peers(999), "nvml.call-failed"),
        (unknown_peers(4), "nvml.access-denied"),
        (unknown_peers(None), "nvml.no-result"),
        # Neither NVML nor the table reports what the card should have.
        (host(replace(of(None), device_id="ffff")), "nvml.no-result"),
    ],
)
def test_a_small_window(host, code):
    assert {*codes(bar1, host)} == {code}
