"""Advice on a topology: good groups of GPUs, CPU pinning of their processes, asymmetries.

Every set is compared. A pair is weighed by the low end of what it should reach: paths through the host are shared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from gpucheck.model.host.wiring import TopologyGpu
from gpucheck.model.topology import Advice, Choice, Pinning, Topology
from gpucheck.printable import ranges
from gpucheck.topology.wiring import DISTANCE, MOST_SWITCH_MEMBERS, islands, nvlinks_of

USUAL_SIZES = (2, 4)


def with_advice(topology: Topology, size: int | None = None) -> Topology:
    """Return the topology with advice. size: GPUs of the job. Default: the usual sizes, none above MOST GPUs.

    Raises ValueError if the host has fewer GPUs, or more than MOST.
    """
    count = len(topology.gpus)
    if size is None and not 2 <= count <= MOST:
        choices: tuple[Choice, ...] = ()
    else:
        sizes = (size,) if size is not None else tuple(k for k in USUAL_SIZES if k < count) or (count,)
        choices = tuple(best_group(topology, k) for k in sizes)
    advice = Advice(
        best=choices, pinning=tuple(pinning(topology, i) for i in range(count)), asymmetries=asymmetries(topology)
    )
    return msgspec.structs.replace(topology, advice=advice)


def pinning(topology: Topology, i: int) -> Pinning:
    """Return the CPUs for the process of the GPU at position `i`, and its nearest network cards."""
    gpu = topology.gpus[i]
    near = max((nearness(nic.classes[i]) for nic in topology.nics), default=0)
    return Pinning(
        gpu=gpu.index,
        numa_node=gpu.numa_node,
        cpus=gpu.cpu_affinity,
        command=_command(gpu),
        nics=tuple(nic.name or nic.label for nic in topology.nics if near and nearness(nic.classes[i]) == near),
    )


def _command(gpu: TopologyGpu) -> str:
    """Return the command prefix, empty if neither node nor CPUs are known.

    The NUMA node is that of the CPUs: the GPU's own node (GPU NUMA ID) is device memory.
    """
    if gpu.numa_node is not None:
        return f"numactl --cpunodebind={gpu.numa_node} --membind={gpu.numa_node}"
    return f"taskset -c {gpu.cpu_affinity}" if gpu.cpu_affinity else ""


NAMED = 6
UNKNOWN = 9


def asymmetries(topology: Topology) -> tuple[str, ...]:
    """Return one sentence for each difference between the GPUs; none if all pairs are equal."""
    return (*_meshes(topology), *_islands(topology), *_sides(topology), *_far_cards(topology))


def _meshes(topology: Topology) -> Iterator[str]:
    counts: dict[int, list[str]] = {}
    for pair in topology.pairs:
        counts.setdefault(nvlinks_of(pair.cls), []).append(f"{pair.a}-{pair.b}")
    if len(counts) < 2:
        return
    joined = sorted((links for links in counts if links), reverse=True)
    parts = [f"{len(counts[links])} by NV{links} ({_named(counts[links])})" for links in joined]
    without = f", {len(counts[0])} have none ({_named(counts[0])})" if 0 in counts else ""
    yield f"NVLink joins {len(topology.pairs) - len(counts.get(0, ()))} of {len(topology.pairs)} pairs: " + (
        ", ".join(parts) + without
    )
    totals = {gpu.index: _active(topology, i) for i, gpu in enumerate(topology.gpus)}
    linked = {index: links for index, links in totals.items() if links}
    if len(set(linked.values())) > 1:
        usual, _ = Counter(linked.values()).most_common(1)[0]
        differing = [f"GPU {index} has {links}" for index, links in linked.items() if links != usual]
        yield f"Active NVLinks: {_named(differing)}, the others have {usual}"


def _active(topology: Topology, i: int) -> int:
    """Return the active NVLinks of a GPU. Through NVSwitch the same links lead to every peer, so they count once."""
    label, wiring = f"GPU{topology.gpus[i].index}", topology.wiring
    if wiring is not None and wiring.told:
        return sum(bundle.links for bundle in wiring.nvlinks if label in (bundle.a, bundle.b))
    links = [nvlinks_of(topology.matrix[i][j]) for j in range(len(topology.gpus)) if j != i]
    return max(links) if len(topology.gpus) > MOST_SWITCH_MEMBERS and all(links) else sum(links)


def _islands(topology: Topology) -> Iterator[str]:
    places = range(len(topology.gpus))
    joined = ((i, j) for i, j in combinations(places, 2) if nvlinks_of(topology.matrix[i][j]))
    groups = [[topology.gpus[i].index for i in sorted(group)] for group in islands(places, joined)]
    together = [group for group in groups if len(group) > 1]
    if together and len(groups) > 1:
        words = ", ".join("{" + ", ".join(map(str, group)) + "}" for group in together[:NAMED])
        alone = [str(group[0]) for group in groups if len(group) == 1]
        yield f"NVLink islands: {words}" + (f"; without NVLink to any peer: {_named(alone)}" if alone else "")


def _sides(topology: Topology) -> Iterator[str]:
    nodes = Counter(gpu.numa_node for gpu in topology.gpus if gpu.numa_node is not None)
    if len(set(nodes.values())) > 1:
        counts = ", ".join(f"node {node} has {count}" for node, count in sorted(nodes.items()))
        yield f"GPUs by NUMA node: {counts}"


def _far_cards(topology: Topology) -> Iterator[str]:
    if not topology.nics:
        return
    near = {
        gpu.index: min((DISTANCE.get(nic.classes[i] or "", UNKNOWN) for nic in topology.nics), default=UNKNOWN)
        for i, gpu in enumerate(topology.gpus)
    }
    best = min(near.values())
    local = [index for index, distance in near.items() if distance == best]
    far = [index for index in near if index not in local]
    if far and best < DISTANCE["NODE"]:
        have, lack = ("has" if len(local) == 1 else "have"), ("does" if len(far) == 1 else "do")
        where = "on the same PCIe switch or host bridge"
        yield f"GPU {ranges(local)} {have} a network card {where}; GPU {ranges(far)} {lack} not"


def _named(words: Sequence[str]) -> str:
    return ", ".join(words[:NAMED]) + (f" and {len(words) - NAMED} more" if len(words) > NAMED else "")


MOST = 16
# Only the order counts, where no pair's bandwidth is known: nearer is better, more NVLinks are better still.
FARTHEST, NVLINK = max(DISTANCE.values()) + 1, 10


def best_group(topology: Topology, size: int) -> Choice:
    """Return the `size` GPUs whose slowest pair is fastest, then on the fewest NUMA nodes, then of the highest sum.

    Raises ValueError unless 1 <= size <= number of GPUs <= MOST.
    """
    gpus, count = topology.gpus, len(topology.gpus)
    if count > MOST:
        raise ValueError(f"GPUs are selected on hosts of up to {MOST} GPUs, and this one has {count}.")
    if not 1 <= size <= count:
        raise ValueError(f"a job of {size} GPUs does not fit on {count}. Choose 1 to {count}.")
    rates = {(pair.a, pair.b): pair.expected for pair in topology.pairs if pair.expected}
    known = len(rates) == len(topology.pairs)
    place = {gpu.index: i for i, gpu in enumerate(gpus)}
    weight: dict[tuple[int, int], float] = dict.fromkeys(combinations(range(count), 2), 0.0)
    for pair in topology.pairs:
        value = rates[pair.a, pair.b].low_gb_s if known else nearness(pair.cls)
        # Lanes and generations go by halves, so a reduced link carries half of what it should at most.
        i, j = sorted((place[pair.a], place[pair.b]))
        weight[i, j] = value / 2 if pair.reduced else value

    def worth(members: tuple[int, ...]) -> tuple[float, int, float]:
        weights = [weight[pair] for pair in combinations(members, 2)]
        return min(weights, default=0.0), -len({gpus[i].numa_node for i in members}), round(sum(weights), 6)

    worths = {members: worth(members) for members in combinations(range(count), size)}
    best = max(worths, key=worths.__getitem__)
    slowest = min(combinations(best, 2), key=weight.__getitem__, default=None)
    ends = (gpus[slowest[0]].index, gpus[slowest[1]].index) if slowest else (0, 0)
    rate = (rates.get(ends) or rates.get(ends[::-1])) if slowest and known else None
    chosen = [gpus[i] for i in best]
    names = ",".join(gpu.uuid or str(gpu.index) for gpu in chosen)
    order = "" if all(gpu.uuid for gpu in chosen) else " CUDA_DEVICE_ORDER=PCI_BUS_ID"
    return Choice(
        size=size,
        gpus=tuple(gpu.index for gpu in chosen),
        slowest=topology.matrix[slowest[0]][slowest[1]] if slowest else None,
        slowest_gb_s=rate.unidirectional_gb_s if rate else None,
        numa_nodes=tuple(sorted({gpu.numa_node for gpu in chosen if gpu.numa_node is not None})),
        equals=sum(worth == worths[best] for worth in worths.values()),
        environment=f"CUDA_VISIBLE_DEVICES={names}{order}",
    )


def nearness(cls: str | None) -> float:
    """Larger is nearer; 0 where the class is not known."""
    return NVLINK + nvlinks_of(cls) if nvlinks_of(cls) else FARTHEST - DISTANCE.get(cls or "", FARTHEST)
