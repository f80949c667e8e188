"""PCIe: paths between functions, redirected traffic, CPU limits, network cards."""

import re
from collections.abc import Iterable
from itertools import combinations, product
from typing import NamedTuple

from gpucheck.model.host.hardware import DATA_DIRECT, PciDevice


# Names as nvidia-smi topo prints them: PIX at most one PCIe switch, PXB several, PHB through the shared host bridge,
# NODE between host bridges of one NUMA node, SYS between NUMA nodes.
def classify(a: PciDevice, b: PciDevice) -> str | None:
    """Return PIX, PXB, PHB, NODE or SYS; X for a device and itself; None if the firmware reports no NUMA node."""
    if a.bus_id == b.bus_id:
        return "X"
    shared = shared_bridges(a, b)
    if shared:
        # One switch is its upstream port, which both share, and one downstream port for each of the two.
        return "PIX" if max(len(a.path), len(b.path)) - shared <= 1 else "PXB"
    if a.root and a.root == b.root:
        return "PHB"
    if a.numa_node is None or b.numa_node is None:
        return None
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def shared_bridges(a: PciDevice, b: PciDevice) -> int:
    count = 0
    for one, other in zip(a.path, b.path, strict=False):
        if one != other:
            break
        count += 1
    return count


FIELD = re.compile(r"^(vendor_id|CPU implementer)[ \t]*:[ \t]*(\S+)", re.MULTILINE)


INTEL = "intel"
VENDORS = {"GenuineIntel": INTEL, "AuthenticAMD": "amd"}


def cpu_vendor(cpuinfo: str | None) -> str | None:
    """Return ``intel``, ``amd``, ``arm`` or the vendor as /proc/cpuinfo has it, None without one.

    Arm prints an implementer code as vendor.
    """
    fields = dict(FIELD.findall((cpuinfo or "")[:65536]))
    vendor = fields.get("vendor_id") or ("arm" if "CPU implementer" in fields else None)
    return VENDORS.get(vendor, vendor) if vendor else None


# Linux calls a bridge redirecting when P2P request redirect (0x04), completion redirect (0x08) or egress control (0x20)
# is set (drivers/pci/p2pdma.c). Source validation alone reroutes nothing.
REDIRECT = 0x04 | 0x08 | 0x20
# Source validation, request and completion redirect, upstream forwarding: what must be set at the root port of a
# ConnectX-8 with DMA function (Data Direct), at the switch port of that function, and at that of the GPU, and what not.
# Source: NVCX_DMA_Complex of rdma-core's kernel-boot/rdma_topo.
CONNECTX = "15b3"
COMPARED = 0x01 | 0x04 | 0x08 | 0x10
ROOT_PORT, OF_CARD, OF_GPU = 0x1C, 0x19, 0x15
# Root port and upstream port of the switch that both share.
SHARED = 2


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


def of_data_direct(pci: Iterable[PciDevice]) -> dict[str, int]:
    """Return COMPARED bits of each bridge between GPU and DMA function of a ConnectX-8, by bus id."""
    every = tuple(pci)
    wanted: dict[str, int] = {}
    for card in (one for one in every if (one.vendor_id, one.device_id) == DATA_DIRECT and len(one.path) > SHARED):
        for gpu in (one for one in every if one.is_nvidia_gpu and one.path[:SHARED] == card.path[:SHARED]):
            if len(gpu.path) > SHARED:
                wanted |= {card.path[0]: ROOT_PORT, card.path[SHARED]: OF_CARD, gpu.path[SHARED]: OF_GPU}
    return wanted


def for_guests(pci: Iterable[PciDevice]) -> bool:
    """Whether a GPU and a ConnectX below a switch of the card are set up for virtual machines: the card has ATS.

    Source: NVCX_Inline_Complex of rdma_topo, which wants traffic redirected then, and direct otherwise.
    """
    every = tuple(pci)
    switches = {one.bus_id for one in every if one.vendor_id == CONNECTX and one.kind == "switch-upstream"}
    gpus = {one.path[SHARED - 1] for one in every if one.is_nvidia_gpu and len(one.path) > SHARED}
    cards = [one for one in every if one.translates and len(one.path) >= SHARED]
    return any(card.path[SHARED - 1] in switches & gpus for card in cards)


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
