"""Network cards as nvidia-smi topo -m lists them: what does RDMA, by name, with its class to GPUs and other cards."""

import msgspec
import pytest

from gpucheck.topology import build
from gpucheck.topology.nics import cards_of_gpus, roles, variables
from tests.checks.network.cards import DOWN, UP, gpu, grace, host, named, nic, port
from tests.checks.network.cards import card as device
from tests.fakes import facts
from tests.machines import on_bus, p100, reading
from tests.topology.servers import INFINIBAND, function, topology

P100S = (p100(0), p100(1))
ETHERNET = "020000"


def nics(*cards):
    return build(reading(*P100S), (*on_bus(*P100S), *cards), False).nics


def card(bus_id, vendor="15b3", class_id=INFINIBAND, **names):
    return msgspec.structs.replace(function(bus_id, class_id, 0), vendor_id=vendor, **names)


@pytest.mark.parametrize(
    ("vendor", "names", "listed"),
    [
        ("15b3", {"infiniband_names": ("mlx5_0",), "net_names": ("ib0",)}, ["mlx5_0"]),
        ("15b3", {"net_names": ("ens1f0np0",)}, ["ens1f0np0"]),
        ("15b3", {}, ["0000:05:00.0"]),
        ("1d0f", {"infiniband_names": ("rdmap16s27",)}, ["rdmap16s27"]),
        ("8086", {"net_names": ("eth0",)}, []),
        ("1af4", {}, []),
    ],
)
def test_what_does_rdma_is_listed(vendor, names, listed):
    """A management port is not; a Mellanox card is, even where a container hides its name."""
    assert [nic.name for nic in nics(card("0000:05:00.0", vendor, ETHERNET, **names))] == listed


def test_classes_to_gpus_and_cards():
    made = topology(8, 2)

    assert made.nics[0].classes == ("PIX", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    assert made.nics[0].peers == ("X", "NODE", "SYS", "SYS")
    assert (made.nics[2].pci_bus_id, made.nics[2].numa_node) == ("0000:c2:00.0", 1)


ASIDE = ("0000:70:00.0",)
DGX_H100 = {"/sys/class/dmi/id/sys_vendor": "NVIDIA", "/sys/class/dmi/id/product_name": "DGXH100"}
GB200 = {"/sys/class/dmi/id/sys_vendor": "NVIDIA", "/sys/class/dmi/id/product_name": "GB200 NVL"}


@pytest.mark.parametrize(
    ("changes", "function", "role"),
    [
        ({}, nic(0, "mlx5_0"), "compute"),
        ({}, nic(7, "mlx5_0", ASIDE), "unknown"),
        ({"is_virtual": True}, nic(0, "mlx5_0"), "virtual"),
        ({}, nic(0, "mlx5_0", device_id="101e"), "virtual"),
        ({}, nic(7, "mlx5_0", ASIDE, net_names=()), "firmware"),
        ({"kind": "switch"}, nic(7, "mlx5_0", ASIDE), "firmware"),
        ({}, nic(7, "mlx5_0", (), vendor_id="1d0f", device_id="efa1"), "compute"),
        ({"route": True}, nic(7, "mlx5_0", ASIDE), "management"),
        ({"route": True}, nic(0, "mlx5_0"), "compute"),
        ({"bond": "bond0"}, nic(7, "mlx5_0", ASIDE), "bond"),
        ({"ports": (DOWN,)}, nic(7, "mlx5_0", ASIDE), "unused"),
    ],
)
def test_the_place_of_a_device_is_its_role_and_its_name_is_not(changes, function, role):
    """mlx5_1 is a card for storage, with an interface."""
    pci = (gpu(0), gpu(1), function, nic(6, "mlx5_1", ASIDE))
    found = roles(facts(pci=pci, rdma=named([msgspec.structs.replace(device(), **changes), device(board="other")])))

    assert found["mlx5_0"].name == role
    assert found["mlx5_0"].reason


def test_a_card_for_each_gpu_of_grace_is_for_compute():
    found = grace(*(device(),) * 4)

    assert {role.name for role in roles(found).values()} == {"compute"}


def test_a_dgx_has_equal_cards_for_storage():
    """They are told from those of the GPUs by their place alone: without such cards none is for compute."""
    aside = nic(7, "mlx5_0", ASIDE)
    found = facts(pci=(gpu(0), aside), rdma=named([device()]), files=DGX_H100)

    assert roles(found)["mlx5_0"].name == "storage"


@pytest.mark.parametrize(
    ("count", "nodes", "found"),
    [(4, (0, 0, 0, 1), 4), (3, (0, 0, 1), 3), (5, (0, 0, 1, 1, 1), 0)],
)
def test_of_a_known_system_the_cards_are_known_wherever_they_are(count, nodes, found):
    """Of five that are equal one is for something else, and nothing shows which."""
    pci = (*grace().pci, *(nic(n, f"mlx5_{n}", ASIDE, node=nodes[n]) for n in range(count)))
    host = facts(pci=pci, rdma=named([device()] * count), files=GB200)

    assert len(cards_of_gpus(host)) == found


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (host(device(), device()), ("NCCL_IB_HCA==mlx5_0,mlx5_1", "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1")),
        (host(device(), device(DOWN)), ("NCCL_IB_HCA==mlx5_0", "UCX_NET_DEVICES=mlx5_0:1")),
        (host(device(UP, port(number=2))), ("NCCL_IB_HCA==mlx5_0", "UCX_NET_DEVICES=mlx5_0:1,mlx5_0:2")),
        (host(device(DOWN)), ()),
        (host(), ()),
    ],
)
def test_active_ports_of_the_cards_are_named(found, lines):
    assert variables(cards_of_gpus(found)) == lines


def test_grace_has_a_card_a_gpu_and_no_switch():
    four, three = grace(*(device(),) * 4), grace(*(device(),) * 3)

    assert [one.device.name for one in cards_of_gpus(four)] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert cards_of_gpus(three) == ()


def test_a_card_elsewhere_is_none_of_the_gpus():
    pci = (*host(device(), device()).pci, nic(7, "mlx5_2", path=("0000:70:00.0",)))

    assert [one.device.name for one in cards_of_gpus(facts(pci=pci, rdma=named([device()] * 3)))] == [
        "mlx5_0",
        "mlx5_1",
    ]
