"""Links used by the copies of an ordered GPU pair: pairs without a common link can be measured simultaneously."""

from collections.abc import Sequence
from itertools import combinations

import msgspec

from gpucheck.measure.values import HOST, Flow
from gpucheck.model.host.hardware import Expected, Gpu, PciDevice
from gpucheck.model.topology import Topology
from gpucheck.topology.pcie.classify import shared_bridges


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The path from one GPU to another. cls: the path class. resources: its links, each with its direction."""

    cls: str | None
    resources: tuple[str, ...]
    expected: Expected | None = None


def paths(gpus: Sequence[Gpu], pci: Sequence[PciDevice], topology: Topology) -> dict[tuple[int, int], Path]:
    """Return the path of every ordered pair, by position in ``gpus``."""
    devices = {device.bus_id.lower(): device for device in pci}
    known = {frozenset((pair.a, pair.b)): pair for pair in topology.pairs}
    answer = {}
    for i, j in combinations(range(len(gpus)), 2):
        pair = known.get(frozenset((gpus[i].index, gpus[j].index)))
        cls, expected = (pair.cls, pair.expected) if pair else (None, None)
        for a, b in ((i, j), (j, i)):
            ends = devices.get(gpus[a].pci_bus_id.lower()), devices.get(gpus[b].pci_bus_id.lower())
            answer[a, b] = Path(cls=cls, resources=_between(cls, a, b, *ends), expected=expected)
    return answer


def flow_resources(flow: Flow, between: dict[tuple[int, int], Path], to_host: Sequence[tuple[str, ...]]) -> set[str]:
    """Return the resources of a flow. to_host: links of each device up to its root, without direction.

    A GPU has copy engines for one copy out and one in at the same time, so the engines are resources too.
    """
    taken = set()
    if flow.src != HOST:
        taken.add(f"out:{flow.src}")
    if flow.dst != HOST:
        taken.add(f"in:{flow.dst}")
    if flow.src == flow.dst:
        return taken
    if HOST in (flow.src, flow.dst) or flow.method == "staged":
        taken |= {f"up:{link}" for link in (to_host[flow.src] if flow.src != HOST else ())}
        taken |= {f"down:{link}" for link in (to_host[flow.dst] if flow.dst != HOST else ())}
        return taken
    return taken | set(between[flow.src, flow.dst].resources if (flow.src, flow.dst) in between else ())


def ports_to_host(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> tuple[tuple[str, ...], ...]:
    """Return for each GPU the bus ids of the links from the root port to the GPU."""
    devices = {device.bus_id.lower(): device for device in pci}
    return tuple((*device.path, device.bus_id) if (device := devices.get(g.pci_bus_id.lower())) else () for g in gpus)


def _between(cls: str | None, i: int, j: int, a: PciDevice | None, b: PciDevice | None) -> tuple[str, ...]:
    if cls is not None and cls.startswith("NV"):
        return (f"nvlink:{i}>{j}",)
    if a is None or b is None:
        return ()
    shared = shared_bridges(a, b)
    links = [f"up:{port}" for port in (*a.path[shared:], a.bus_id)]
    links += [f"down:{port}" for port in (*b.path[shared:], b.bus_id)]
    if cls == "SYS":
        links.append(f"socket:{a.numa_node}>{b.numa_node}")
    return tuple(links)
