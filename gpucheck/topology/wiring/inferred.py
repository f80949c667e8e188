"""The wiring inferred from path classes, for the tree and the drawing of a pasted matrix.

It has no bus ids and no PCIe links: devices of class PIX share a box, and every NUMA node has one.
"""

from collections.abc import Iterator
from itertools import combinations

import msgspec

from gpucheck.model.host.wiring import NVSWITCH, NumaNode, NvLinkBundle, WiredFunction, Wiring
from gpucheck.model.topology import Topology
from gpucheck.topology.islands import islands

MOST_SWITCH_MEMBERS = 5  # fully and evenly joined by direct links, up to here: 12 links over 3 peers, 18 over 3


def infer_wiring(topology: Topology) -> Topology:
    """Return the topology with an inferred wiring, unless its source reported one."""
    return topology if topology.wiring is not None else msgspec.structs.replace(topology, wiring=_inferred(topology))


def _inferred(topology: Topology) -> Wiring:
    """Return NUMA nodes by affinity, switches by PIX, NVLinks by NV#."""
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
    """Return groups of two and more that PIX joins, in the order of their first member."""
    labels = [f"GPU{gpu.index}" for gpu in topology.gpus]
    members = [*labels, *(nic.label for nic in topology.nics)]
    near = [(labels[i], labels[j]) for i, j in combinations(range(len(labels)), 2) if topology.matrix[i][j] == "PIX"]
    near += [(labels[i], nic.label) for nic in topology.nics for i, cls in enumerate(nic.classes) if cls == "PIX"]
    return [sorted(group, key=members.index) for group in islands(members, near) if len(group) > 1]


def nvlinks_of(cls: str | None) -> int:
    """Return the number of NVLinks that a path class states."""
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
