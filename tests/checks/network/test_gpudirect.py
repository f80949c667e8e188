"""GPUDirect RDMA: one of two ways is enough, and what the host cannot show is not claimed."""

import msgspec
import pytest

from gpucheck.checks.network import gpudirect
from gpucheck.model import DriverState
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host
from tests.fakes import SYSTEM

OPEN = DriverState(loaded_version="580.178.04", loaded_flavour="open")
CLOSED = DriverState(loaded_version="580.178.04", loaded_flavour="proprietary")
PEER = "nvidia_peermem 16384 0 - Live 0x0\n"
OTHERS = "nvidia 16384 0 - Live 0x0\nnot_nvidia_peermem 1 0 - Live 0x0\n"


@pytest.mark.parametrize(
    ("driver", "kernel", "modules", "verdict", "code"),
    [
        (OPEN, "6.8.0-60-generic", OTHERS, PASS, None),
        (OPEN, "5.14.0-503.14.1.el9_5.x86_64", OTHERS, PASS, None),
        (CLOSED, "5.4.0-200-generic", OTHERS + PEER, PASS, None),
        (CLOSED, "6.8.0-60-generic", "nv_peer_mem 1 0 - Live 0x0\n", PASS, None),
        (CLOSED, "6.8.0-60-generic", OTHERS, WARN, "network.gpudirect-missing"),
        (OPEN, "5.4.0-200-generic", OTHERS, WARN, "network.gpudirect-kernel"),
        (OPEN, "4.18.0-553.el8_10.x86_64", OTHERS, UNKNOWN, "network.gpudirect-unknown"),
        (CLOSED, "6.8.0-60-generic", None, UNKNOWN, "network.gpudirect-unknown"),
        (DriverState(), "6.8.0-60-generic", OTHERS, UNKNOWN, "network.gpudirect-without-driver"),
    ],
)
def test_one_of_two_ways_is_enough(driver, kernel, modules, verdict, code):
    system = msgspec.structs.replace(SYSTEM, kernel=kernel)
    files = {} if modules is None else {"/proc/modules": modules}

    (finding,) = judge(gpudirect, host(card(), card(), driver=driver, system=system, files=files))

    assert (finding.verdict, finding.code) == (verdict, code)


def test_dma_buf_of_another_driver_of_the_cards_is_not_known():
    found = host(card(), card(), driver=OPEN, files={"/proc/modules": OTHERS})
    pci = tuple(msgspec.structs.replace(one, driver="bnxt_en") if one.is_network_card else one for one in found.pci)

    (finding,) = judge(gpudirect, msgspec.structs.replace(found, pci=pci))

    assert (finding.verdict, finding.code) == (UNKNOWN, "network.gpudirect-unknown")


def test_without_cards_nothing_is_asked_for():
    assert [finding.verdict for finding in judge(gpudirect, host())] == [SKIP]
