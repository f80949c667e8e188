"""Which numbers a change may alter: a search predicts only those again."""

from collections.abc import Iterator

from gpucheck.diagnose.instance import Change
from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.paths import Pair


class Touched:
    """Places of numbers by what may change them."""

    def __init__(self, numbers: tuple[Number, ...]) -> None:
        self._links: dict[int, list[int]] = {}  # by GPU: all but latencies
        self._peer: dict[Pair, list[int]] = {}  # by pair: copies with peer-to-peer asked for
        self._memory: list[int] = []
        self._every = range(len(numbers))
        for n, number in enumerate(numbers):
            if not number.quantity.endswith("latency"):
                for gpu in set(number.pair):
                    self._links.setdefault(gpu, []).append(n)
            if number.b is None:
                self._memory.append(n)
            elif number.quantity.startswith("p2p"):
                self._peer.setdefault(number.pair, []).append(n)

    def by(self, change: Change) -> frozenset[int]:
        """Places of the numbers whose prediction may differ with this change."""
        return frozenset(self._by(change))

    def _by(self, change: Change) -> Iterator[int]:
        for group in ({*change.links, *change.parts}, *change.uplinks):
            for gpu in group:
                yield from self._links.get(gpu, ())
        for pair in (*change.ways, *change.nvlinks):
            yield from self._peer.get(pair, ())
        for odd in change.odd:
            yield from self._odd(odd)

    def _odd(self, odd: tuple[object, ...]) -> Iterator[int]:
        if odd == ("host",):
            yield from self._every
        elif odd[0] == "memory":
            yield from self._memory
        else:
            ends = sorted(end for end in odd if isinstance(end, int))
            for pair in [(ends[0], ends[1])] if len(ends) == 2 else [pair for pair in self._peer if ends[0] in pair]:
                yield from self._peer.get(pair, ())
