"""The wiring of a host from its PCI functions, and the links that a transfer between two functions uses.

A wiring that is inferred from path classes has no bus ids and no PCIe links: devices of class PIX share a box, and
every NUMA node has one.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Literal

import msgspec
from msgspec.structs import replace

from gpucheck.model.host.hardware import (
    NVSWITCH,
    Gpu,
    Nic,
    NumaNode,
    NvLinkBundle,
    PciDevice,
    PcieLink,
    WiredFunction,
    Wiring,
)
from gpucheck.model.topology import Topology
from gpucheck.topology.expected import Hop
from gpucheck.topology.pcie import Cpu
from gpucheck.topology.view import NvLinks, islands

BridgeKind = Literal["root-port", "switch-upstream", "switch-downstream", "bridge"]
PORTS: tuple[BridgeKind, BridgeKind] = ("switch-downstream", "switch-upstream")


def wire(gpus: tuple[Gpu, ...], nics: tuple[Nic, ...], devices: dict[str, PciDevice], cpu: Cpu | None) -> Wiring:
    """devices: every known PCI function by bus id; a bridge that is not among them is drawn without its link."""
    leaves = [_gpu(gpu, devices) for gpu in gpus]
    cards: dict[str, WiredFunction] = {}
    for nic in nics:
        if nic.pci_bus_id and nic.pci_bus_id not in cards:
            cards[nic.pci_bus_id] = _leaf(nic.label, "nic", nic.pci_bus_id, devices)
    leaves += cards.values()
    return Wiring(
        nodes=tuple(_nodes(gpus, leaves, cpu)),
        functions=(*_bridges(leaves, devices), *leaves),
        nvlinks=tuple(_bundles(gpus, NvLinks(gpus, devices.values()))),
    )


def gpu_link(gpu: Gpu, devices: dict[str, PciDevice]) -> PcieLink:
    """Return the link by NVML (device and slot together), by sysfs where NVML reports nothing."""
    device = devices.get(gpu.pci_bus_id.lower())
    link = device.link if device else PcieLink()
    return PcieLink(
        generation=gpu.pcie.generation or link.generation,
        width=gpu.pcie.width or link.width,
        max_generation=gpu.pcie.max_generation or link.max_generation,
        max_width=gpu.pcie.max_width or link.max_width,
    )


def _gpu(gpu: Gpu, devices: dict[str, PciDevice]) -> WiredFunction:
    leaf = _leaf(f"GPU{gpu.index}", "gpu", gpu.pci_bus_id, devices)
    node = gpu.numa_node if gpu.numa_node is not None else leaf.numa_node
    return replace(leaf, numa_node=node, link=gpu_link(gpu, devices))


def _leaf(label: str, kind: Literal["gpu", "nic"], bus_id: str, devices: dict[str, PciDevice]) -> WiredFunction:
    device = devices.get(bus_id.lower())
    return WiredFunction(
        bus_id=bus_id,
        kind=kind,
        label=label,
        above=device.path[-1] if device and device.path else None,
        root=device.root if device else "",
        numa_node=device.numa_node if device else None,
        link=device.link if device else PcieLink(),
    )


def _bridges(leaves: list[WiredFunction], devices: dict[str, PciDevice]) -> Iterator[WiredFunction]:
    seen: set[str] = set()
    for leaf in leaves:
        device = devices.get(leaf.bus_id.lower())
        for depth, bus_id in enumerate(device.path if device else ()):
            if device is None or bus_id in seen:
                continue
            seen.add(bus_id)
            bridge = devices.get(bus_id)
            # Below the root port a chain alternates: into a switch, out of it.
            kind: BridgeKind = "root-port" if depth == 0 else PORTS[depth % 2]
            reported = bridge.kind if bridge and bridge.kind not in (None, "bridge") else None
            yield WiredFunction(
                bus_id=bus_id,
                kind=reported or kind,
                above=device.path[depth - 1] if depth else None,
                root=device.root,
                numa_node=bridge.numa_node if bridge and bridge.numa_node is not None else leaf.numa_node,
                link=bridge.link if bridge else PcieLink(),
            )


def _nodes(gpus: tuple[Gpu, ...], leaves: list[WiredFunction], cpu: Cpu | None) -> Iterator[NumaNode]:
    cpus: dict[int | None, str | None] = {}
    for gpu, leaf in zip(gpus, leaves, strict=False):
        cpus[leaf.numa_node] = cpus.get(leaf.numa_node) or gpu.cpu_affinity
    for leaf in leaves:
        cpus.setdefault(leaf.numa_node, None)
    for node in sorted(cpus, key=lambda node: (node is None, node or 0)):
        yield NumaNode(index=node, cpus=cpus[node], vendor=cpu.vendor if cpu else None)


def _bundles(gpus: tuple[Gpu, ...], links: NvLinks) -> Iterator[NvLinkBundle]:
    """Direct links once for both ends; links to switches once for each GPU and switch."""
    for n, gpu in enumerate(gpus):
        yield from (NvLinkBundle(a=f"GPU{gpu.index}", b=end, links=count) for end, count in links.switches(n).items())
    for i, j in combinations(range(len(gpus)), 2):
        direct = max(links.ends[i].direct[links.ends[j].bus_id], links.ends[j].direct[links.ends[i].bus_id])
        if direct:
            yield NvLinkBundle(a=f"GPU{gpus[i].index}", b=f"GPU{gpus[j].index}", links=direct)


class Paths:
    """Which PCIe links lie between two functions of a wiring, by label."""

    def __init__(self, wiring: Wiring) -> None:
        self.functions = {function.bus_id: function for function in wiring.functions}
        self.chains = {f.label: tuple(self._chain(f)) for f in wiring.functions if f.label}

    def _chain(self, function: WiredFunction) -> Iterable[WiredFunction]:
        up = [function]
        while (above := self.functions.get(up[-1].above or "")) is not None and above not in up:
            up.append(above)
        return reversed(up)

    def between(self, a: str, b: str) -> tuple[Hop, ...]:
        """Every link that could be read on the way; the functions' own even where it could not. Both labels must be
        known, else nothing is."""
        one, other = self.chains.get(a, ()), self.chains.get(b, ())
        if not one or not other:
            return ()
        shared = 0
        while shared < min(len(one), len(other)) and one[shared] is other[shared]:
            shared += 1
        own = (one[-1], other[-1])
        bridges = (*one[shared:-1], *other[shared:-1])
        return tuple(Hop(f.bus_id, f.link) for f in own) + tuple(
            Hop(f.bus_id, f.link) for f in bridges if f.link.max_generation and f.link.max_width
        )

    def reduced(self, a: str, b: str) -> tuple[str, ...]:
        ids = {hop.bus_id for hop in self.between(a, b)}
        return tuple(bus_id for bus_id in sorted(ids) if is_reduced(self.functions[bus_id]))


def is_reduced(function: WiredFunction) -> bool:
    """Fewer lanes than both ends have. Of a switch a lower generation too: only a device's own link sleeps.

    A port has the same link as the function below it, which is the one to name.
    """
    if function.kind not in ("gpu", "nic", "switch-upstream"):
        return False
    link = function.link
    lanes = link.width is not None and link.max_width is not None and link.width < link.max_width
    speed = link.generation is not None and link.max_generation is not None and link.generation < link.max_generation
    return lanes or (speed and function.kind == "switch-upstream")


MOST_SWITCH_MEMBERS = 5  # fully and evenly joined by direct links, up to here: 12 links over 3 peers, 18 over 3


def infer_wiring(topology: Topology) -> Topology:
    """Return the topology with an inferred wiring, unless its source reported one."""
    return topology if topology.wiring is not None else msgspec.structs.replace(topology, wiring=_inferred(topology))


def _inferred(topology: Topology) -> Wiring:
    numa = {f"GPU{gpu.index}": gpu.numa_node for gpu in topology.gpus}
    cpus = {gpu.numa_node: gpu.cpu_affinity for gpu in reversed(topology.gpus)}
    for nic in topology.nics:
        near = [gpu.numa_node for gpu, cls in zip(topology.gpus, nic.classes, strict=True) if cls not in (None, "SYS")]
        numa[nic.label] = near[0] if near and len(set(near)) == 1 else None
    nodes = sorted(set(numa.values()), key=lambda node: (node is None, node or 0))
    switches = _switches(topology)
    above = {label: f"switch{n}" for n, switch in enumerate(switches) for label in switch}
    functions = [
        WiredFunction(bus_id=f"switch{n}", kind="switch-upstream", numa_node=numa[switch[0]])
        for n, switch in enumerate(switches)
    ]
    functions += [
        WiredFunction(
            bus_id=label,
            kind="gpu" if i < len(topology.gpus) else "nic",
            label=label,
            above=above.get(label),
            numa_node=numa[switches[int(above[label][6:])][0]] if label in above else node,
        )
        for i, (label, node) in enumerate(numa.items())
    ]
    return Wiring(
        nodes=tuple(NumaNode(index=node, cpus=cpus.get(node)) for node in nodes),
        functions=tuple(functions),
        nvlinks=tuple(_nvlinks(topology)),
        told=False,
    )


def _switches(topology: Topology) -> list[list[str]]:
    labels = [f"GPU{gpu.index}" for gpu in topology.gpus]
    members = [*labels, *(nic.label for nic in topology.nics)]
    near = [(labels[i], labels[j]) for i, j in combinations(range(len(labels)), 2) if topology.matrix[i][j] == "PIX"]
    near += [(labels[i], nic.label) for nic in topology.nics for i, cls in enumerate(nic.classes) if cls == "PIX"]
    return [sorted(group, key=members.index) for group in islands(members, near) if len(group) > 1]


def nvlinks_of(cls: str | None) -> int:
    return int(cls[2:]) if cls and cls.startswith("NV") else 0


def _nvlinks(topology: Topology) -> Iterator[NvLinkBundle]:
    """Yield links to switches if more GPUs than a board can mesh are all joined equally; else direct links."""
    joined = [pair for pair in topology.pairs if nvlinks_of(pair.cls)]
    counts = {pair.cls for pair in joined}
    if len(topology.gpus) > MOST_SWITCH_MEMBERS and len(joined) == len(topology.pairs) and len(counts) == 1:
        for gpu in topology.gpus:
            yield NvLinkBundle(a=f"GPU{gpu.index}", b=NVSWITCH, links=nvlinks_of(joined[0].cls))
        return
    for pair in joined:
        yield NvLinkBundle(a=f"GPU{pair.a}", b=f"GPU{pair.b}", links=nvlinks_of(pair.cls))
