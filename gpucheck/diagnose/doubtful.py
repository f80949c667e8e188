"""Which numbers look too low to be believed before they were measured again alone."""

from collections.abc import Iterable
from math import exp
from statistics import median
from typing import NamedTuple

from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import Number, numbers
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.score import Prediction
from gpucheck.diagnose.world import World
from gpucheck.model.diagnosis.observations import Observations

# Low is below the range of nine healthy machines in ten, or clearly below equal pairs.
LIKE_OTHERS = 0.90


class Doubtful(NamedTuple):
    """one_way: ordered pairs; both_ways: pairs with both directions at once. The slowest first."""

    one_way: tuple[Pair, ...] = ()
    both_ways: tuple[Pair, ...] = ()


def doubtful(seen: Observations) -> Doubtful:
    """Pairs below what a machine without a fault predicts for them."""
    machine = Machine(seen)
    healthy = World(machine)
    rows = [(n, p) for n in numbers(machine) if n.b is not None and (p := healthy.predict(n)) is not None]
    one_way = _low((n, p) for n, p in rows if n.quantity == "p2p-one-way")
    both_ways = _low((n, p) for n, p in rows if n.quantity == "p2p-both-ways")
    slow = {frozenset(pair) for pair in one_way}
    return Doubtful(one_way, tuple(pair for pair in both_ways if frozenset(pair) not in slow))


def _low(rows: Iterable[tuple[Number, Prediction]]) -> tuple[Pair, ...]:
    kept = list(rows)
    parts: dict[object, list[float]] = {}
    for number, predicted in kept:
        parts.setdefault(predicted.group, []).append(exp(number.value) / predicted.median)
    usual = {group: median(values) for group, values in parts.items()}
    found = []
    for number, predicted in kept:
        part = exp(number.value) / predicted.median
        if exp(number.value) < predicted.low or part < LIKE_OTHERS * usual[predicted.group]:
            found.append((part, (number.a, number.a if number.b is None else number.b)))
    return tuple(pair for _, pair in sorted(found))
