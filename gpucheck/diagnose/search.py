"""Which sets of causes explain a machine: instances alone, in pairs, and more where numbers remain unexplained."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import exp, log

from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import Number, numbers
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.readings import readings
from gpucheck.diagnose.score import Fit, fit, group_log_likelihood
from gpucheck.diagnose.world import World

FIRST_BEAM, BEAM, DEEPEST, NEGLIGIBLE = 12, 5, 12, 14.0
# Numbers of one machine err together in more ways than the model knows: odds count for less than they would if the
# model were right. Chosen by the calibration over simulated machines.
TEMPER = 1.4
WORK, FEWEST, MOST = 12_000, 20, 80  # numbers x sets of one size that are tried, and how many at least and at most
ALL_NUMBERS, SAMPLE, ODD = 1500, 150, 0.08
CANDIDATES = 40  # instances worth combining, the best alone first


Key = frozenset[int]
"""A set of instances, each by its place among all of them."""


@dataclass(frozen=True)
class Ranked:
    """A set of instances and how well it explains everything: natural logarithm of prior x likelihood."""

    world: World
    score: float
    probability: float = 0.0


@dataclass(frozen=True)
class _Fitted:
    """How the numbers fit one set of instances: by group, each number by its place, and the likelihood of each group.

    One more instance alters few numbers, so those of a larger set are worked out from those of a smaller one.
    """

    groups: dict[Hashable, dict[int, Fit]]
    likelihoods: dict[Hashable, float]


class Search:
    """All explanations of one machine that were scored."""

    def __init__(self, machine: Machine, instances: tuple[Instance, ...]) -> None:
        self.machine, self.numbers = machine, _weighed(numbers(machine), World(machine))
        self.instances = instances
        touched = _Touched(self.numbers)
        self._places = [touched.by(instance.change) for instance in instances]
        self._touching = [
            frozenset(k for k, places in enumerate(self._places) if n in places) for n in range(len(self.numbers))
        ]
        self._fits: dict[tuple[int, Key], Fit | None] = {}
        self._fitted: dict[Key, _Fitted] = {}
        self._scored: dict[Key, Ranked] = {}

    def ranking(self) -> tuple[Ranked, ...]:
        """Most probable first; probabilities add up to one."""
        none: Key = frozenset()
        self._fitted[none] = self._without_instances()
        alone = self._score(none)
        singles = [self._score(frozenset([k]), none, k) for k in range(len(self.instances))]
        order = sorted(range(len(singles)), key=lambda k: -singles[k])[:CANDIDATES]
        gains = {k: singles[k] - alone for k in order if singles[k] > alone - NEGLIGIBLE}
        beam = sorted(self._scored, key=lambda key: -self._scored[key].score)[:FIRST_BEAM]
        tries = max(FEWEST, min(MOST, WORK // max(1, len(self.numbers))))
        for _ in range(DEEPEST):
            best = max(ranked.score for ranked in self._scored.values())
            self._fitted = {key: self._fitted[key] for key in beam}
            fresh = self._larger(beam, gains)[:tries]
            if not fresh:
                break
            for key, smaller, k in fresh:
                self._score(key, smaller, k)
            beam = sorted((key for key, _, _ in fresh), key=lambda key: -self._scored[key].score)[:BEAM]
            if self._scored[beam[0]].score < best - 3.0:
                break
        return self._normalised()

    def _larger(self, beam: list[Key], gains: dict[int, float]) -> list[tuple[Key, Key, int]]:
        """Sets with one more instance that were not tried, each with the set and the instance that it is made of.

        First those that would be best if gains added up.
        """
        hopes: dict[Key, tuple[float, Key, int]] = {}
        for key in beam:
            for k, gain in gains.items() if key else ():
                larger = key | {k}
                if larger not in self._scored and self._compatible(key, k):
                    hope = self._scored[key].score + gain
                    if larger not in hopes or hope > hopes[larger][0]:
                        hopes[larger] = hope, key, k
        return [(key, *hopes[key][1:]) for key in sorted(hopes, key=lambda key: (-hopes[key][0], sorted(key)))]

    def _compatible(self, key: Key, k: int) -> bool:
        word = self.instances[k].excludes
        return k not in key and all(self.instances[other].excludes != word for other in key)

    def _score(self, key: Key, smaller: Key = frozenset(), k: int | None = None) -> float:
        """Score the set of instances `key`, which is the set `smaller` and instance k."""
        world = World(self.machine, tuple(self.instances[place] for place in sorted(key)))
        if k is not None:
            self._fitted[key] = self._with(key, world, smaller, k)
        prior = sum(log(instance.prior) for instance in world.instances)
        evidence = sum(self._fitted[key].likelihoods.values()) + sum(r.log_probability for r in readings(world))
        self._scored[key] = Ranked(world, prior + evidence / TEMPER)
        return self._scored[key].score

    def _without_instances(self) -> _Fitted:
        healthy, groups = World(self.machine), dict[Hashable, dict[int, Fit]]()
        for n in range(len(self.numbers)):
            fitted = self._fit(n, frozenset(), healthy)
            if fitted is not None:
                groups.setdefault(fitted.group, {})[n] = fitted
        return _Fitted(groups, {group: group_log_likelihood(rows.values()) for group, rows in groups.items()})

    def _with(self, key: Key, world: World, smaller: Key, k: int) -> _Fitted:
        """The fits of a set of instances from those of the set without instance k."""
        fitted = self._fitted[smaller]
        changed: dict[Hashable, dict[int, Fit]] = {}
        for n in self._places[k]:
            before, after = self._fits[n, smaller & self._touching[n]], self._fit(n, key, world)
            if before == after:
                continue
            for one in (before, after):
                if one is not None and one.group not in changed:
                    changed[one.group] = dict(fitted.groups.get(one.group, ()))
            if before is not None:
                del changed[before.group][n]
            if after is not None:
                changed[after.group][n] = after
        likelihoods = {group: group_log_likelihood(rows.values()) if rows else 0.0 for group, rows in changed.items()}
        return _Fitted({**fitted.groups, **changed}, {**fitted.likelihoods, **likelihoods})

    def _fit(self, n: int, key: Key, world: World) -> Fit | None:
        """How number n fits; only the instances that touch it matter. None where it is not compared."""
        place = n, key & self._touching[n]
        if place not in self._fits:
            predicted = world.predict(self.numbers[n])
            self._fits[place] = fit(self.numbers[n].value, predicted) if predicted is not None else None
        return self._fits[place]

    def _normalised(self) -> tuple[Ranked, ...]:
        ordered = sorted(self._scored.values(), key=lambda ranked: -ranked.score)
        weights = [exp(ranked.score - ordered[0].score) for ranked in ordered]
        total = sum(weights)
        return tuple(Ranked(r.world, r.score, w / total) for r, w in zip(ordered, weights, strict=True))


def _weighed(seen: tuple[Number, ...], healthy: World) -> tuple[Number, ...]:
    """All numbers of usual machines; of a group of very many equal ones, the outliers and a sample of the rest."""
    if len(seen) <= ALL_NUMBERS:
        return seen
    groups: dict[Hashable, list[tuple[float, int]]] = {}
    for n, number in enumerate(seen):
        predicted = healthy.predict(number)
        if predicted is not None:
            groups.setdefault(predicted.group, []).append((number.value - log(predicted.median), n))
    kept: set[int] = set()
    for rows in groups.values():
        middle = sorted(value for value, _ in rows)[len(rows) // 2]
        odd = sorted(rows, key=lambda row: -abs(row[0] - middle))[:SAMPLE]
        kept.update(n for value, n in odd if abs(value - middle) > ODD)
        kept.update(n for _, n in rows[:: max(1, len(rows) // SAMPLE)])
    return tuple(seen[n] for n in sorted(kept))


class _Touched:
    """Which numbers a change may alter, by their places: only those are predicted again."""

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
