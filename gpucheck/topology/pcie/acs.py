"""Which PCIe bridges lie between a GPU and its neighbors, and which of them redirect peer-to-peer traffic.

Linux calls a bridge redirecting when P2P request redirect (0x04), completion redirect (0x08) or egress control (0x20)
is set (drivers/pci/p2pdma.c). Source validation alone reroutes nothing.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import NamedTuple

from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Confidence, Finding
from gpucheck.model.host.hardware import PciDevice
from gpucheck.printable import counted
from gpucheck.topology.pcie.classify import shared_bridges

CHECK = "acs"
REDIRECT = 0x04 | 0x08 | 0x20
# By what the bridges redirect: traffic between GPUs, to RDMA network cards.
CODES = {
    (True, False): "topology.acs-redirects-gpus",
    (False, True): "topology.acs-redirects-rdma",
    (True, True): "topology.acs-redirects-both",
}


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


def registers(bridges: Iterable[PciDevice]) -> tuple[str, ...]:
    """Return the raw registers that could be read, one a line."""
    return tuple(f"{b.bus_id}: ACS control 0x{b.acs.control:04x}" for b in bridges if b.acs is not None)


def redirect_finding(bridges: Bridges) -> Finding | None:
    """Return one WARN for all redirecting bridges, None if there is no such bridge."""
    found = [bridge for bridge in bridges.every if redirects(bridge)]
    if not found:
        return None
    code = CODES[any(map(redirects, bridges.gpus)), any(map(redirects, bridges.rdma))]
    return redirecting([one.bus_id for one in found], code=code, evidence=registers(bridges.every))


def redirecting(
    bridges: Sequence[str],
    *,
    code: str = CODES[True, False],
    evidence: tuple[str, ...] = (),
    confidence: Confidence | None = None,
) -> Finding:
    """Return the finding for bridges that redirect, by bus id; none is named if only that it is on is known."""
    where = f" at {counted(len(bridges), 'PCIe bridge')}" if bridges else ""
    ids = ";".join(bridges) or "BUS_IDS"
    subject = Subject(check=CHECK, evidence=evidence)
    return subject.warns(code, f"ACS redirect on{where}", "off", confidence=confidence, bridges=ids)
