"""Which PCIe bridges lie between a GPU and its neighbors, and which of them redirect peer-to-peer traffic.

Linux calls a bridge redirecting when P2P request redirect (0x04), completion redirect (0x08) or egress control (0x20)
is set (drivers/pci/p2pdma.c). Source validation alone reroutes nothing.
"""

from collections.abc import Iterable
from itertools import combinations, product
from typing import NamedTuple

from gpucheck.model.host.hardware import PciDevice
from gpucheck.topology.pcie.classify import shared_bridges

REDIRECT = 0x04 | 0x08 | 0x20


class Bridges(NamedTuple):
    """Bridges below the one that a pair shares, each once. rdma: between a GPU and an RDMA network card."""

    gpus: tuple[PciDevice, ...]
    rdma: tuple[PciDevice, ...]

    @property
    def every(self) -> tuple[PciDevice, ...]:
        return tuple({bridge.bus_id: bridge for bridge in (*self.gpus, *self.rdma)}.values())


def bridges_between(pci: Iterable[PciDevice]) -> Bridges:
    """Return the bridges that GPU to GPU and GPU to network traffic crosses inside PCIe switches."""
    by_bus_id = {device.bus_id: device for device in pci}
    gpus = [device for device in by_bus_id.values() if device.is_nvidia_gpu]
    cards = [device for device in by_bus_id.values() if device.is_network_card and device.infiniband_names]
    return Bridges(_crossed(combinations(gpus, 2), by_bus_id), _crossed(product(gpus, cards), by_bus_id))


def _crossed(pairs: Iterable[tuple[PciDevice, PciDevice]], by_bus_id: dict[str, PciDevice]) -> tuple[PciDevice, ...]:
    found: dict[str, PciDevice] = {}
    for a, b in pairs:
        shared = shared_bridges(a, b)
        for bus_id in (*a.path[shared:], *b.path[shared:]) if shared else ():
            if bus_id in by_bus_id:
                found[bus_id] = by_bus_id[bus_id]
    return tuple(found.values())


def redirects(bridge: PciDevice) -> bool:
    """Whether the bridge sends peer-to-peer traffic up to the root complex."""
    return bridge.acs is not None and bool(bridge.acs.control & REDIRECT)
