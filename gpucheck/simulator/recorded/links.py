"""The NVLinks of a recording, port by port, as in ``nvlink.ports`` of a profile."""

from collections.abc import Iterable

from gpucheck.model import Gpu, NvLink, PciDevice
from gpucheck.simulator.machine.cables import HIDDEN

Port = tuple[int, int]


def ports_of(
    functions: Iterable[PciDevice], reported: Iterable[Gpu], known: set[str]
) -> tuple[tuple[int, int, str], ...]:
    """(GPU, link, far end) of every live link. functions: the GPUs of the bus, which number them. known: bus ids.

    A cable is listed once, by its lower end. Where the port at the far end is unknown, the links of two GPUs to each
    other are paired in order; a link that the other GPU does not have stays one-sided.
    """
    number = {function.bus_id: index for index, function in enumerate(functions)}
    live = {(number[gpu.pci_bus_id], link.link): link for gpu in reported for link in gpu.nvlinks if link.active}
    peers = _peers(live, number)
    ports = []
    for here, link in sorted(live.items()):
        there = peers.get(here)
        if there is None:
            ports.append((*here, _far_end(link, known)))
        elif here < there:
            ports.append((*here, f"gpu {there[0]} link {there[1]}"))
    return tuple(ports)


def _far_end(link: NvLink, known: set[str]) -> str:
    return link.remote_bus_id if link.remote_bus_id in known and link.remote_bus_id else HIDDEN


def _peers(live: dict[Port, NvLink], number: dict[str, int]) -> dict[Port, Port]:
    """Both ends of every cable between two GPUs."""
    peers: dict[Port, Port] = {}
    for here, link in sorted(live.items()):
        there = number.get(link.remote_bus_id or "")
        if there is None or there == here[0] or here in peers:
            continue
        back = [
            port
            for port, other in sorted(live.items())
            if port[0] == there and port not in peers and number.get(other.remote_bus_id or "") == here[0]
        ]
        far = (there, link.remote_link)
        chosen = far if far in back else next(iter(back), None)
        if chosen is not None:
            other_end: Port = (chosen[0], chosen[1] or 0)
            peers[here], peers[other_end] = other_end, here
    return peers
