"""Which GPUs make the best job of a given size: the slowest pair decides, as it does in a collective.

A pair is weighed by the low end of what it should reach, since paths through the host are shared.

Up to EXACT_UP_TO GPUs every set is weighed. Beyond that sets grow from each GPU by its best partner, which finds NVLink
islands and switches, and may miss a better set where classes are mixed: such a choice is marked as not exact.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.model.advice import Choice
from gpucheck.model.topology import Topology

EXACT_UP_TO = 16
# Only the order counts, where no pair's bandwidth is known: nearer is better, more NVLinks are better still.
NEARNESS = {"PIX": 5, "PXB": 4, "PHB": 3, "NODE": 2, "SYS": 1}
NVLINK = 10


class _Set(NamedTuple):
    """members: positions, ascending. slowest, total: of its pairs. nodes: how many NUMA nodes, negative."""

    slowest: float
    nodes: int
    total: float
    members: tuple[int, ...]

    @property
    def worth(self) -> tuple[float, int, float]:
        return self.slowest, self.nodes, self.total


def best_group(topology: Topology, size: int) -> Choice:
    """The best `size` GPUs. Raises ValueError unless 1 <= size <= number of GPUs."""
    count = len(topology.gpus)
    if not 1 <= size <= count:
        raise ValueError(f"a job of {size} GPUs does not fit on {count}. Choose 1 to {count}.")
    table = _Table(topology)
    exact = count <= EXACT_UP_TO or size in (1, 2, count)
    candidates = table.every(size) if exact else table.grown(size)
    best: _Set | None = None
    equals = 0
    for candidate in candidates:
        if best is None or candidate.worth > best.worth:
            best, equals = candidate, 1
        elif candidate.worth == best.worth:
            equals += 1
    members = best.members if best else ()
    return table.choice(members, exact, equals if exact else None)


class _Table:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.rates = {(pair.a, pair.b): pair.expected for pair in topology.pairs if pair.expected}
        self.known = len(self.rates) == len(topology.pairs)
        place = {gpu.index: i for i, gpu in enumerate(topology.gpus)}
        self.weight = [[0.0] * len(topology.gpus) for _ in topology.gpus]
        for pair in topology.pairs:
            i, j = place[pair.a], place[pair.b]
            value = self.rates[pair.a, pair.b].low_gb_s if self.known else nearness(pair.cls)
            # Lanes and generations go by halves, so a reduced link carries half of what it should at most.
            self.weight[i][j] = self.weight[j][i] = value / 2 if pair.reduced else value
        self.node = [gpu.numa_node for gpu in topology.gpus]

    def every(self, size: int) -> Iterator[_Set]:
        """Every set of that size that is not surely worse than one before it, in the order of its members."""
        best = -1.0
        # Depth first: (members, slowest, total); a set whose slowest pair is already too slow is not finished.
        stack: list[tuple[tuple[int, ...], float, float]] = [((), float("inf"), 0.0)]
        count = len(self.weight)
        while stack:
            members, slowest, total = stack.pop()
            if slowest < best:
                continue
            if len(members) == size:
                best = max(best, slowest)
                yield self._set(members, slowest, total)
                continue
            first = members[-1] + 1 if members else 0
            for new in range(count - (size - len(members)), first - 1, -1):
                row = self.weight[new]
                near = [row[other] for other in members]
                worst = min(near, default=slowest)
                if min(slowest, worst) >= best:
                    stack.append(((*members, new), min(slowest, worst), total + sum(near)))

    def grown(self, size: int) -> Iterator[_Set]:
        """One set from each GPU: always add the GPU whose slowest link to the set is fastest, then whose sum is."""
        for start, row in enumerate(self.weight):
            members, slowest, total = [start], list(row), list(row)
            left = set(range(len(self.weight))) - {start}
            worst, sum_ = float("inf"), 0.0
            while len(members) < size:
                nodes = {self.node[m] for m in members}
                new = max(left, key=lambda k: (slowest[k], self.node[k] in nodes, total[k], -k))
                left.remove(new)
                members.append(new)
                worst, sum_ = min(worst, slowest[new]), sum_ + total[new]
                for k in left:
                    slowest[k] = min(slowest[k], self.weight[new][k])
                    total[k] += self.weight[new][k]
            yield self._set(tuple(sorted(members)), worst, sum_)

    def _set(self, members: tuple[int, ...], slowest: float, total: float) -> _Set:
        return _Set(slowest, -len({self.node[i] for i in members}), round(total, 6), members)

    def _pair(self, i: int, j: int) -> tuple[int, int]:
        a, b = self.topology.gpus[i].index, self.topology.gpus[j].index
        return (a, b) if (a, b) in self.rates else (b, a)

    def choice(self, members: tuple[int, ...], exact: bool, equals: int | None) -> Choice:
        gpus = [self.topology.gpus[i] for i in members]
        pairs = [(self.weight[a][b], a, b) for a in members for b in members if a < b]
        worst = min(pairs, default=None)
        slowest = self.rates.get(self._pair(worst[1], worst[2])) if worst else None
        names = [gpu.uuid or str(gpu.index) for gpu in gpus]
        nodes = {gpu.numa_node for gpu in gpus if gpu.numa_node is not None}
        return Choice(
            size=len(members),
            gpus=tuple(gpu.index for gpu in gpus),
            slowest=self.topology.matrix[worst[1]][worst[2]] if worst else None,
            slowest_gb_s=slowest.unidirectional_gb_s if slowest and self.known else None,
            numa_nodes=tuple(sorted(nodes)),
            exact=exact,
            equals=equals,
            environment=f"CUDA_VISIBLE_DEVICES={','.join(names)}"
            + ("" if all(gpu.uuid for gpu in gpus) else " CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        )


def nearness(cls: str | None) -> float:
    """Larger is nearer; 0 where the class is not known."""
    if cls is None:
        return 0
    return NVLINK + int(cls[2:]) if cls.startswith("NV") else NEARNESS.get(cls, 0)
