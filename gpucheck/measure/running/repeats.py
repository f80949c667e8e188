"""Select pairs with low results, to measure again alone. Pure functions."""

from typing import Protocol

from gpucheck.measure.running.results import Pair, Results
from gpucheck.measure.values import Flow

MOST_REPEATED = 16  # if every pair is low, this number is sufficient


class Doubts(Protocol):
    """Pairs with low results, the slowest first."""

    @property
    def one_way(self) -> tuple[Pair, ...]:
        """Return ordered pairs."""

    @property
    def both_ways(self) -> tuple[Pair, ...]:
        """Return pairs with both directions simultaneously."""


def again(results: Results, doubts: Doubts) -> list[tuple[Flow, ...]]:
    """Return flows of each low pair not yet measured alone, up to the limit of a run."""
    one_way = [(Flow(src=a, dst=b),) for a, b in doubts.one_way]
    left = [flows for flows in one_way if flows[0] not in results.alone]
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in doubts.both_ways)
    both: list[tuple[Flow, ...]] = [
        (Flow(src=a, dst=b), Flow(src=b, dst=a)) for a, b in pairs if (a, b) not in results.both_alone
    ]
    return left[: MOST_REPEATED - len(results.alone)] + both[: MOST_REPEATED - len(results.both_alone)]
