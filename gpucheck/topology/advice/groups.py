"""Which GPUs make the best job of a given size: the slowest pair decides, as it does in a collective.

Every set is compared. A pair is weighed by the low end of what it should reach: paths through the host are shared.
"""

from itertools import combinations

from gpucheck.model.advice import Choice
from gpucheck.model.topology import Topology

MOST = 16
# Only the order counts, where no pair's bandwidth is known: nearer is better, more NVLinks are better still.
NEARNESS = {"PIX": 5, "PXB": 4, "PHB": 3, "NODE": 2, "SYS": 1}
NVLINK = 10


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
    if cls is None:
        return 0
    return NVLINK + int(cls[2:]) if cls.startswith("NV") else NEARNESS.get(cls, 0)
