"""Access to network cards: device files, libibverbs and its providers."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.network import access
from gpucheck.model import DriverState, LoaderLibrary
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host, of_amazon
from tests.fakes import SYSTEM

DEBIAN = (LoaderLibrary(soname="libibverbs.so.1", path="/lib/x86_64-linux-gnu/libibverbs.so.1", source="ldconfig"),)
OWN = (LoaderLibrary(soname="libibverbs.so.1", path="/opt/rdma/lib/libibverbs.so.1", source="LD_LIBRARY_PATH"),)
PROVIDERS = {access.PROVIDERS: ("mlx5.driver", "rxe.driver")}
DOCKER = replace(SYSTEM, container="docker")


def cards(*errors, **changes):
    """A host whose cards have device files with these errors; with libibverbs and its providers."""
    found = host(*(card() for _ in errors), **{"libraries": DEBIAN, "folders": PROVIDERS} | changes)
    rdma = tuple(replace(one, verbs_error=error) for one, error in zip(found.rdma, errors, strict=True))
    return replace(found, rdma=rdma)


def without_names():
    found = cards(None, None)
    return replace(found, rdma=(found.rdma[0], replace(found.rdma[1], verbs=None)))


UNREAD = replace(cards(None, None), rdma=tuple(replace(one, unread="x") for one in cards(None, None).rdma))
CASES = {
    "healthy": (cards(None, None), PASS, None, "host"),
    "a file is missing": (cards(None, "ENOENT"), FAIL, "network.access-no-file", "nic:0000:14:00.0"),
    "the kernel names no file": (without_names(), FAIL, "network.access-no-file", "nic:0000:14:00.0"),
    "all files are missing": (cards("ENOENT", "ENOENT"), WARN, "network.access-no-files", "host"),
    "another user's files": (cards(None, "EACCES"), WARN, "network.access-forbidden", "host"),
    "a device cgroup": (cards(None, "EPERM"), SKIP, "network.access-hidden", "host"),
    "a container without the files": (cards("ENOENT", "ENOENT", system=DOCKER), SKIP, "network.access-hidden", "host"),
    "a container without one": (cards(None, "ENOENT", system=DOCKER), SKIP, "network.access-hidden", "host"),
    "a container with the files": (cards(None, system=DOCKER), PASS, None, "host"),
    "no answer of the kernel": (UNREAD, UNKNOWN, "network.device-unreadable", "nic:0000:04:00.0"),
    "no library": (cards(None, libraries=()), WARN, "network.verbs-missing", "host"),
    "no cache": (cards(None, libraries=None), UNKNOWN, "network.verbs-unknown", "host"),
    "no providers": (cards(None, folders={}), WARN, "network.verbs-no-provider", "host"),
    "others' providers": (
        cards(None, folders={access.PROVIDERS: ("efa.driver",)}),
        WARN,
        "network.verbs-no-provider",
        "host",
    ),
    "a library that was built elsewhere": (cards(None, libraries=OWN, folders={}), PASS, None, "host"),
    "EFA without libibverbs": (replace(of_amazon(), libraries=()), PASS, None, "host"),
    "no card": (host(), SKIP, "network.no-rdma-device", "host"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_finding(name):
    facts, *expected = CASES[name]

    (finding,) = judge(access, facts)

    assert [finding.verdict, finding.code, finding.subject] == expected


def test_a_missing_file_and_a_missing_library_are_two_findings():
    found = [finding.code for finding in judge(access, cards(None, "ENOENT", libraries=()))]

    assert found == ["network.access-no-file", "network.verbs-missing"]


def test_a_recording_without_cards_needs_no_library():
    assert access.CHECK.more(host()) == ()


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
    system = replace(SYSTEM, kernel=kernel)
    files = {} if modules is None else {"/proc/modules": modules}

    (finding,) = judge("gpudirect", host(card(), card(), driver=driver, system=system, files=files))

    assert (finding.verdict, finding.code) == (verdict, code)


def test_dma_buf_of_another_driver_of_the_cards_is_not_known():
    found = host(card(), card(), driver=OPEN, files={"/proc/modules": OTHERS})
    pci = tuple(replace(one, driver="bnxt_en") if one.is_network_card else one for one in found.pci)

    (finding,) = judge("gpudirect", replace(found, pci=pci))

    assert (finding.verdict, finding.code) == (UNKNOWN, "network.gpudirect-unknown")


@pytest.mark.parametrize("driver", [OPEN, CLOSED])
@pytest.mark.parametrize("modules", [OTHERS, PEER])
def test_geforce_has_no_gpudirect_with_any_module(driver, modules):
    """NVIDIA/gdrcopy#211 and #206: cards for data centers and workstations have it only."""
    found = host(card(), card(), driver=driver, files={"/proc/modules": modules})
    pci = tuple(replace(one, device_id="2684") if one.is_nvidia_gpu else one for one in found.pci)

    (finding,) = judge("gpudirect", replace(found, pci=pci))

    assert (finding.verdict, finding.code) == (SKIP, "network.gpudirect-geforce")


@pytest.mark.parametrize(
    ("driver", "modules", "verdict"), [(CLOSED, OTHERS, UNKNOWN), (CLOSED, PEER, UNKNOWN), (OPEN, OTHERS, PASS)]
)
def test_efa_may_have_a_way_of_its_own(driver, modules, verdict):
    """amzn/amzn-drivers#282: Amazon's driver pins memory of closed modules itself; with new kernels it cannot."""
    system = replace(SYSTEM, kernel="6.8.0-60-generic")
    found = replace(of_amazon(), driver=driver, system=system, texts=host(files={"/proc/modules": modules}).texts)

    (finding,) = judge("gpudirect", found)

    assert finding.verdict == verdict


def test_without_cards_nothing_is_asked_for():
    assert [finding.verdict for finding in judge("gpudirect", host())] == [SKIP]
