"""A network card for each GPU, where the other GPUs have one."""

import msgspec
import pytest

from gpucheck.checks.network import rails
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, codes, judge
from tests.checks.network.cards import card, gpu, grace, host, nic
from tests.fakes import SYSTEM, facts

CONTAINER = msgspec.structs.replace(SYSTEM, container="docker")


def test_a_gpu_without_a_card_is_named():
    (finding,) = judge(rails, host(card(), card(), card(), gpus=4))

    assert (finding.verdict, finding.code, finding.subject) == (FAIL, "network.gpu-without-card", "gpu:0000:33:00.0")
    assert finding.cause == "nic-rail"


def test_a_gpu_with_fewer_ports_than_the_others_is_named():
    """A card with two functions of which one is not there."""
    pci = host(card(), card(), card(), card()).pci
    second = tuple(nic(n, f"mlx5_{n + 4}", function=1) for n in range(4))

    assert codes(rails, facts(pci=pci + second)) == [None]
    (finding,) = judge(rails, facts(pci=pci + second[:3]))
    assert (finding.code, finding.subject) == ("network.gpu-with-fewer-cards", "gpu:0000:33:00.0")
    assert (finding.seen, finding.wanted) == (1, 2)
    assert codes(rails, facts(pci=pci + second[:2])) == [None]

    more = host(*(card(),) * 5).pci
    two = tuple(nic(n, f"mlx5_{n + 5}", function=1) for n in range(5))
    moved = nic(4, "mlx5_8", function=2)
    assert codes(rails, facts(pci=(*more, *two[:3], moved, two[4]))) == ["network.gpu-with-fewer-cards"]


def test_two_gpus_of_a_lower_switch_share_a_card():
    """DGX-2: four GPUs and two cards below the first switch, half of them below each second one."""
    way = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"
    lower = [(*way, f"0000:0{n}:00.0") for n in (3, 4, 5, 6)]
    gpus = tuple(gpu(f"{place}", (*path, "x"), 0) for place, path in enumerate(lower))
    cards = tuple(nic(place, f"mlx5_{place}", (*path, "y")) for place, path in enumerate(lower))

    assert codes(rails, facts(pci=gpus + cards)) == [None]
    assert codes(rails, facts(pci=gpus + cards[:3])) == ["network.gpu-without-card"]


@pytest.mark.parametrize(("system", "verdict"), [(SYSTEM, FAIL), (CONTAINER, UNKNOWN)])
def test_a_card_without_an_rdma_device_is_named(system, verdict):
    """A container may not see the RDMA devices of its host."""
    found = host(card(), card(), card())
    pci = (*found.pci, gpu(3), nic(3))

    (finding,) = judge(rails, facts(pci=pci, system=system))

    assert (finding.verdict, finding.subject) == (verdict, "nic:0000:34:00.0")
    assert finding.cause == ("rdma-unavailable" if verdict is FAIL else None)


def test_ethernet_cards_of_gpus_without_any_rdma_device_are_named():
    """mlx5_ib is not loaded. One card, or cards beside the switches of the GPUs, may be for the front end."""
    near = [nic(place, class_id="020000") for place in range(3)]
    aside = [nic(place, path=("0000:70:00.0",), class_id="020000") for place in range(3)]
    gpus = tuple(gpu(place) for place in range(3))
    two_ports = (near[0], nic(0, function=1, class_id="020000"))

    assert codes(rails, facts(pci=(*gpus, *near))) == ["network.no-rdma-of-any-card"]
    for cards in (two_ports, aside, [nic(place, vendor_id="8086", class_id="020000") for place in range(3)]):
        assert codes(rails, facts(pci=(*gpus, *cards))) == ["network.no-rdma-device"]


def test_another_product_below_the_switch_is_no_card_of_the_gpu():
    pci = (*host(card(), card(), card()).pci, gpu(3), nic(3, device_id="1533", vendor_id="8086", class_id="020000"))

    assert codes(rails, facts(pci=pci)) == ["network.gpu-without-card"]


@pytest.mark.parametrize(("system", "verdict"), [(SYSTEM, WARN), (CONTAINER, UNKNOWN)])
def test_infiniband_cards_without_any_rdma_device(system, verdict):
    pci = tuple(msgspec.structs.replace(one, infiniband_names=()) for one in host(card(), card()).pci)

    assert [finding.verdict for finding in judge(rails, facts(pci=pci, system=system))] == [verdict]


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("fewer cards than switches", host(card(), card(), gpus=4)),
        ("one card", host(card(), gpus=8)),
        ("no card", host(gpus=8)),
        ("Ethernet only", facts(pci=(gpu(0), nic(0, class_id="020000")))),
        ("Grace: no switch", grace(card(), card(), card(), card())),
    ],
)
def test_hosts_with_fewer_cards_are_normal(why, found):
    assert [finding.verdict for finding in judge(rails, found)] == [SKIP], why


def test_a_card_for_each_gpu_passes():
    assert [finding.verdict for finding in judge(rails, host(card(), card(), card(), card()))] == [PASS]


GB200 = {"/sys/class/dmi/id/sys_vendor": "NVIDIA", "/sys/class/dmi/id/product_name": "GB200 NVL"}


def test_on_grace_a_missing_card_is_named_where_the_system_is_known():
    """Each card has a root port of its own there, so no place shows that one is missing."""
    three = grace(card(), card(), card())

    (finding,) = judge(rails, facts(pci=three.pci, rdma=three.rdma, files=GB200))

    assert (finding.verdict, finding.code, finding.seen, finding.wanted) == (WARN, "network.cards-missing", 3, 4)
    assert codes(rails, three) == ["network.no-card-per-switch"]


ORACLE = {"/sys/class/dmi/id/chassis_asset_tag": "OracleCloud.com"}
DGX = {"/sys/class/dmi/id/sys_vendor": "NVIDIA", "/sys/class/dmi/id/product_name": "DGXH100"}


def test_of_a_known_system_cards_that_several_gpus_lack_are_named():
    """BM.GPU.H100.8: eight cards with two functions each. On a DGX some cards of the product are for storage."""
    cards = [nic(n, f"mlx5_{n}{f}", function=f) for n in range(8) for f in (0, 1)]
    whole, pairs = (*map(gpu, range(8)), *cards), (*map(gpu, range(8)), *cards[:12], cards[12], cards[14])
    half, missing = (*map(gpu, range(8)), *cards[:8]), ["network.cards-missing"]

    assert codes(rails, facts(pci=whole, files=ORACLE)) == [None]
    assert codes(rails, facts(pci=pairs, files=ORACLE)) == codes(rails, facts(pci=half, files=ORACLE)) == missing
    assert codes(rails, facts(pci=pairs, files=ORACLE, system=CONTAINER)) == codes(rails, facts(pci=pairs)) == [None]
    assert codes(rails, facts(pci=half, files=DGX)) == ["network.no-card-per-switch"]


@pytest.mark.parametrize(
    ("nodes", "system", "code"),
    [
        ((0, 0, 1, 1), SYSTEM, None),
        ((0, 0, 0, 1), SYSTEM, "network.cards-at-other-nodes"),
        ((0, 0, None, 1), SYSTEM, "network.no-card-per-switch"),
        ((0, 0, 0, 1), msgspec.structs.replace(SYSTEM, virtual="kvm"), "network.no-card-per-switch"),
    ],
)
def test_on_grace_each_socket_has_as_many_cards_as_gpus(nodes, system, code):
    """The PCIe cables of a tray go to the wrong socket; NUMA nodes of a guest are made up."""
    cards = [nic(n, f"mlx5_{n}", (f"001{n}:00:00.0",), node=node) for n, node in enumerate(nodes)]

    assert codes(rails, facts(pci=(*grace().pci, *cards), files=GB200, system=system)) == [code]


@pytest.mark.parametrize(
    ("vendor", "product", "ids", "code"),
    [
        ("Google", "Google Compute Engine", ("1ae0", "0042"), "network.no-rdma-by-design"),
        ("Amazon EC2", "p5.48xlarge", ("1d0f", "efa1"), "network.no-rdma-of-any-card"),
        ("Supermicro", "X", ("1d0f", "efa1"), "network.no-rdma-of-any-card"),
        ("Supermicro", "X", ("8086", "1592"), "network.no-rdma-device"),
    ],
)
def test_a_host_without_rdma_says_what_it_is(vendor, product, ids, code):
    card = msgspec.structs.replace(nic(0), vendor_id=ids[0], device_id=ids[1], class_id="020000")
    files = {"/sys/class/dmi/id/sys_vendor": vendor, "/sys/class/dmi/id/product_name": product}

    (finding,) = judge(rails, facts(pci=(*map(gpu, range(8)), card), files=files))

    assert finding.code == code
