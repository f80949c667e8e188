"""What is measured again with nothing else beside it: the pairs that somebody else finds too low. Pure."""

from typing import Protocol

from gpucheck.measure.running.results import Pair, Results
from gpucheck.measure.values import Flow

MOST_REPEATED = 16  # where every pair is low, these are enough to be sure of


class Doubts(Protocol):
    """Numbers that look low, the slowest first."""

    @property
    def one_way(self) -> tuple[Pair, ...]:
        """Ordered pairs."""

    @property
    def both_ways(self) -> tuple[Pair, ...]:
        """Pairs with both directions at once."""


def again(results: Results, doubts: Doubts) -> list[tuple[Flow, ...]]:
    """One way or both ways of each doubted pair that was not measured alone yet, as many as a run has time for."""
    one_way = [(Flow(src=a, dst=b),) for a, b in doubts.one_way]
    left = [flows for flows in one_way if flows[0] not in results.alone]
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in doubts.both_ways)
    both: list[tuple[Flow, ...]] = [
        (Flow(src=a, dst=b), Flow(src=b, dst=a)) for a, b in pairs if (a, b) not in results.both_alone
    ]
    return left[: MOST_REPEATED - len(results.alone)] + both[: MOST_REPEATED - len(results.both_alone)]
