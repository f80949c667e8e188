"""Every measured number of a machine that an explanation predicts."""

from collections.abc import Iterator
from math import log
from typing import NamedTuple

from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.model.diagnosis.observations import Matrix
from gpucheck.model.diagnosis.ranking import Quantity


class Number(NamedTuple):
    """One measured number, GB/s or us. a, b: source and destination, both ways a < b; b None: between host and GPU a.

    error: its own uncertainty as a part of it. cls: the path class where it is of a class, not of a pair. far: host
    memory of another NUMA node; None where that is not known.
    """

    quantity: Quantity
    a: int
    b: int | None
    value: float
    error: float = 0.0
    far: bool | None = None
    cls: str | None = None

    @property
    def pair(self) -> Pair:
        """Its two GPUs, the lower index first; twice the same for one GPU's number."""
        other = self.a if self.b is None else self.b
        return (self.a, other) if self.a <= other else (other, self.a)


def numbers(machine: Machine) -> tuple[Number, ...]:
    """Every measured number of a machine that a World predicts."""
    return (*_pairs(machine), *_by_class(machine), *_host_copies(machine))


def _pairs(m: Machine) -> Iterator[Number]:
    seen = m.measured
    ordered: dict[Quantity, Matrix | None] = {
        "p2p-one-way": seen.p2p_uni_gb_s, "staged-one-way": seen.staged_uni_gb_s,
        "p2p-latency": seen.p2p_latency_us, "staged-latency": seen.staged_latency_us,
    }  # fmt: skip
    for quantity, matrix in ordered.items():
        errors = seen.p2p_uni_error if quantity == "p2p-one-way" else None
        for i, row in enumerate(matrix or ()):
            for j, value in enumerate(row):
                if value and i != j:
                    yield Number(quantity, i, j, log(value), (errors[i][j] or 0.0) if errors else 0.0)
    sums: dict[Quantity, Matrix | None] = {
        "p2p-both-ways": seen.p2p_bidir_gb_s, "staged-both-ways": seen.staged_bidir_gb_s
    }  # fmt: skip
    for quantity, matrix in sums.items():
        for i, j in m.pairs if matrix else ():
            measured = [value for value in (matrix[i][j], matrix[j][i]) if value]  # type: ignore[index]
            if measured:
                yield Number(quantity, i, j, log(sum(measured) / len(measured)))


def _by_class(m: Machine) -> Iterator[Number]:
    """The ends of a range given for a path class, where no pair of it has a number of its own."""
    if m.count < 2 or m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s:
        return
    for cls, ends in m.measured.by_class.items():
        pair = next((pair for pair in m.pairs if m.classes[pair] == cls), (0, 1))
        for value in sorted(set(ends)):
            yield Number("p2p-one-way", *pair, log(value), cls=cls)


def _host_copies(m: Machine) -> Iterator[Number]:
    for row in m.measured.host_device:
        node = m.gpu(row.gpu).numa_node
        far = None if row.numa_node is None or node is None else row.numa_node != node
        for value in (row.h2d_gb_s, row.d2h_gb_s):
            if value:
                yield Number("host-copy", row.gpu, None, log(value), far=far)
