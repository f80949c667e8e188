"""Hosts with network cards: a switch for each GPU and its card, or Grace's root ports."""

import msgspec

from gpucheck.model import PciDevice
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from tests.fakes import facts

UP = RdmaPort(number=1, state="active", physical="linkup", rate_gbit_s=400.0, link_layer="infiniband", lid=1)
DOWN = RdmaPort(number=1, state="down", physical="polling", rate_gbit_s=10.0, link_layer="infiniband", lid=65535)
CARD = RdmaDevice(name="", kind="ca", board="MT_0000000970", model="MT4129", firmware="28.39.2048", ports=(UP,))


def port(**changes):
    return msgspec.structs.replace(UP, **changes)


def card(*ports, **changes):
    return msgspec.structs.replace(CARD, ports=ports or (UP,), **changes)


def gpu(place, path=None, node=0):
    path = (f"0000:{place}0:01.0", f"0000:{place}1:00.0", f"0000:{place}2:00.0") if path is None else path
    return PciDevice(
        bus_id=f"0000:{place}3:00.0", vendor_id="10de", device_id="2330", class_id="030200", path=path, numa_node=node
    )


def nic(place, name="", path=None, function=0, node=0, **changes):
    path = (f"0000:{place}0:01.0", f"0000:{place}1:00.0", f"0000:{place}2:01.0") if path is None else path
    device = PciDevice(
        bus_id=f"0000:{place}4:00.{function}",
        vendor_id="15b3",
        device_id="1021",
        class_id="020700",
        path=path,
        numa_node=node,
        net_names=(f"ib{place}",),
        infiniband_names=(name,) if name else (),
        driver="mlx5_core",
    )
    return msgspec.structs.replace(device, **changes)


def named(devices):
    return tuple(
        msgspec.structs.replace(device, name=f"mlx5_{n}", verbs=f"uverbs{n}") for n, device in enumerate(devices)
    )


def host(*devices, gpus=None, **changes):
    """Below switch n a GPU and the n-th device. gpus: how many switches there are, where some have no card."""
    pci = [gpu(n) for n in range(len(devices) if gpus is None else gpus)]
    pci += [nic(n, f"mlx5_{n}") for n in range(len(devices))]
    return facts(**{"pci": tuple(pci), "rdma": named(devices)} | changes)


def of_amazon():
    found = host(*(card(port(link_layer="unknown", lid=0, rate_gbit_s=100.0), firmware=None, board=None),) * 3)
    pci = tuple(
        msgspec.structs.replace(one, vendor_id="1d0f", device_id="efa1", driver="efa") if one.is_network_card else one
        for one in found.pci
    )
    return msgspec.structs.replace(found, pci=pci)


def grace(*devices, **changes):
    """Four GPUs and as many cards, each below a root port of its own, two on each node. changes: of the cards."""
    pci = [gpu(n, (f"000{n}:00:00.0",), node=n // 2) for n in range(4)]
    pci += [nic(n, f"mlx5_{n}", (f"001{n}:00:00.0",), node=n // 2, **changes) for n in range(len(devices))]
    return facts(pci=tuple(pci), rdma=named(devices))
