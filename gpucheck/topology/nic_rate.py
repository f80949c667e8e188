"""What a transfer between network cards can reach: the least of port, PCIe path and GPU link. Pure.

Payload of PCIe: packets of 256 bytes with 24 of headers (PCIe base specification 2.2). Of a port at its MTU: 30 bytes
of headers with InfiniBand, 82 with RoCE v2 (InfiniBand architecture 1.7, annex A17), frame and gap included.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.knowledge import pcie_gb_s
from gpucheck.model.diagnosis.observations import NicResult, ObservedNic, Port

PACKET, PACKET_HEADER = 256, 24
HEADERS = {"infiniband": 30, "ethernet": 82}
# Where it is not known: the default of an Ethernet interface with 1500 bytes.
LEAST_MTU = 1024


class Limit(NamedTuple):
    """gb_s: GB/s of payload in one direction. basis: what sets it. port: the PCIe link, None for the card's port."""

    gb_s: float
    basis: str
    port: Port | None = None


def expected(
    nics: Sequence[ObservedNic], result: NicResult, *, best: bool = False, virtual: bool = False
) -> Limit | None:
    """Return the lowest limit of a transfer; None without the rate of a port.

    best: of PCIe links as both their ends allow, not as trained. virtual: a guest is shown no real PCIe links.
    """
    both = [nics[number] for number in dict.fromkeys(result.nics)]
    ports = [_of_port(nic) for nic in both]
    limits = [limit for limit in ports if limit is not None]
    if len(limits) < len(ports):
        return None
    if not virtual:
        # To and from the memory of a GPU the data stays below the switch that both share: card and slot remain.
        links = [port for nic in both for port in (nic.path[-2:] if result.gpu else nic.path)]
        users = nics if result.together else both
        limits += filter(None, (_of_link(port, _users(port, users), best=best) for port in links))
        if result.gpu is not None:
            limits += filter(None, [_of_link(result.gpu, 1, best=best)])
    return min(limits, key=lambda limit: limit.gb_s)


def _of_port(nic: ObservedNic) -> Limit | None:
    if nic.rate_gbit_s is None:
        return None
    mtu = nic.mtu or LEAST_MTU
    share = mtu / (mtu + HEADERS.get(nic.link_layer or "", max(HEADERS.values())))
    return Limit(nic.rate_gbit_s / 8 * share, f"port {nic.rate_gbit_s:g} Gb/s, MTU {mtu}")


def _users(port: Port, nics: Iterable[ObservedNic]) -> int:
    """How many cards share the link at the same time."""
    return max(1, sum(any(one.bus_id == port.bus_id for one in nic.path) for nic in nics)) if port.bus_id else 1


def _of_link(port: Port, users: int, *, best: bool) -> Limit | None:
    gen, width = (port.max_gen or port.gen, port.max_width or port.width) if best else (port.gen, port.width)
    if gen is None or width is None:
        return None
    try:
        gb_s = pcie_gb_s(gen, width) * PACKET / (PACKET + PACKET_HEADER)
    except LookupError:
        return None
    shared = f", shared by {users}" if users > 1 else ""
    return Limit(gb_s / users, f"PCIe Gen{gen} x{width} of {port.bus_id or 'the card'}{shared}", port)
