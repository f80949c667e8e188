"""Which sets of causes explain a machine: instances alone, in pairs, and more where numbers remain unexplained."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import exp, log

from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.readings import readings
from gpucheck.diagnose.score import Prediction, log_likelihood
from gpucheck.diagnose.world import Instance, Number, World, numbers

FIRST_BEAM, BEAM, DEEPEST, NEGLIGIBLE = 12, 5, 12, 14.0
# Numbers of one machine err together in more ways than the model knows: odds count for less than they would if the
# model were right. Chosen by the calibration over simulated machines.
TEMPER = 1.4
WORK, FEWEST, MOST = 12_000, 20, 80  # numbers x sets of one size that are tried, and how many at least and at most
ALL_NUMBERS, SAMPLE, ODD = 1500, 150, 0.08
CANDIDATES = 40  # instances worth combining, the best alone first


@dataclass(frozen=True)
class Ranked:
    """A set of instances and how well it explains everything: natural logarithm of prior x likelihood."""

    world: World
    score: float
    probability: float = 0.0


class Search:
    """All explanations of one machine that were scored."""

    def __init__(self, machine: Machine, instances: tuple[Instance, ...]) -> None:
        self.machine, self.numbers = machine, _weighed(numbers(machine), World(machine))
        self.instances = instances
        healthy = World(machine)
        self._usual = [healthy.predict(number) for number in self.numbers]
        self._groups: dict[Hashable, list[int]] = {}
        for n, predicted in enumerate(self._usual):
            if predicted is not None:
                self._groups.setdefault(predicted.group, []).append(n)
        self._by_group = {
            group: log_likelihood([(self.numbers[n].value, self._usual[n]) for n in members])  # type: ignore[misc]
            for group, members in self._groups.items()
        }
        self._healthy: float = sum(self._by_group.values())
        self._places: dict[int, frozenset[int]] = {}
        self._of_gpu: dict[int, list[int]] = {}
        self._of_pair: dict[Pair, list[int]] = {}
        for n, number in enumerate(self.numbers):
            ends = {number.a} if number.b is None else {number.a, number.b}
            for gpu in ends:
                self._of_gpu.setdefault(gpu, []).append(n)
            if number.b is not None:
                self._of_pair.setdefault((min(ends), max(ends)), []).append(n)
        self._scored: dict[frozenset[int], Ranked] = {}

    def ranking(self) -> tuple[Ranked, ...]:
        """Most probable first; probabilities add up to one."""
        alone = self._score(frozenset()).score
        singles = [self._score(frozenset([k])).score for k in range(len(self.instances))]
        order = sorted(range(len(singles)), key=lambda k: -singles[k])[:CANDIDATES]
        gains = {k: singles[k] - alone for k in order if singles[k] > alone - NEGLIGIBLE}
        beam = sorted(self._scored, key=lambda key: -self._scored[key].score)[:FIRST_BEAM]
        tries = max(FEWEST, min(MOST, WORK // max(1, len(self.numbers))))
        for _ in range(DEEPEST):
            best = max(ranked.score for ranked in self._scored.values())
            fresh = self._extended(beam, gains)[:tries]
            if not fresh:
                break
            for key in fresh:
                self._score(key)
            beam = sorted(fresh, key=lambda key: -self._scored[key].score)[:BEAM]
            if self._scored[beam[0]].score < best - 3.0:
                break
        return self._normalised()

    def _extended(self, beam: list[frozenset[int]], gains: dict[int, float]) -> list[frozenset[int]]:
        """Sets with one more instance that were not tried; first those that would be best if gains added up."""
        hopes: dict[frozenset[int], float] = {}
        for key in beam:
            for k, gain in gains.items() if key else ():
                larger = key | {k}
                if larger not in self._scored and self._compatible(key, k):
                    hopes[larger] = max(self._scored[key].score + gain, hopes.get(larger, float("-inf")))
        return sorted(hopes, key=lambda key: (-hopes[key], sorted(key)))

    def _compatible(self, key: frozenset[int], k: int) -> bool:
        word = self.instances[k].excludes
        return k not in key and all(self.instances[other].excludes != word for other in key)

    def _score(self, key: frozenset[int]) -> Ranked:
        if key not in self._scored:
            chosen = tuple(self.instances[k] for k in sorted(key))
            world = World(self.machine, chosen)
            prior = sum(log(instance.prior) for instance in chosen)
            evidence = self._log_likelihood(key, world) + sum(r.log_probability for r in readings(world))
            score = prior + evidence / TEMPER
            self._scored[key] = Ranked(world, score)
        return self._scored[key]

    def _log_likelihood(self, key: frozenset[int], world: World) -> float:
        """Of all numbers; groups of numbers that no instance touches are as on a healthy machine."""
        touched = frozenset().union(*(self._touched(k) for k in key))
        if not touched:
            return self._healthy
        groups = {self._usual[n].group for n in touched if self._usual[n] is not None}  # type: ignore[union-attr]
        changed: dict[Hashable, list[tuple[float, Prediction]]] = {group: [] for group in groups}
        for n in touched:
            predicted = world.predict(self.numbers[n])
            if predicted is not None:
                changed.setdefault(predicted.group, []).append((self.numbers[n].value, predicted))
        total: float = self._healthy
        for group, rows in changed.items():
            members = self._groups.get(group, ())
            kept = [(self.numbers[n].value, self._usual[n]) for n in members if n not in touched]
            total += log_likelihood([*kept, *rows]) - self._by_group.get(group, 0.0)  # type: ignore[list-item]
        return total

    def _touched(self, k: int) -> frozenset[int]:
        """Places of the numbers that an instance changes."""
        if k not in self._places:
            change, of_gpu = self.instances[k].change, self._of_gpu
            pairs, gpus = {*change.ways, *change.nvlinks}, {*change.links, *change.parts}
            places: set[int] = set()
            for odd in change.odd:
                if odd == ("host",):
                    places.update(range(len(self.numbers)))
                elif odd[0] in ("gpu", "memory"):
                    gpus.update([int(str(odd[1]))] if len(odd) > 1 else range(self.machine.count))
                else:
                    a, b = (int(str(end)) for end in odd[-2:])
                    pairs.add((min(a, b), max(a, b)))
            for group in change.uplinks:
                gpus |= group
            for gpu in gpus:
                places.update(of_gpu.get(gpu, ()))
            for pair in pairs:
                places.update(self._of_pair.get(pair, ()))
            self._places[k] = frozenset(places)
        return self._places[k]

    def _normalised(self) -> tuple[Ranked, ...]:
        ordered = sorted(self._scored.values(), key=lambda ranked: -ranked.score)
        weights = [exp(ranked.score - ordered[0].score) for ranked in ordered]
        total = sum(weights)
        return tuple(Ranked(r.world, r.score, w / total) for r, w in zip(ordered, weights, strict=True))


def _weighed(seen: tuple[Number, ...], healthy: World) -> tuple[Number, ...]:
    """All numbers of usual machines; of a group of very many that are alike, the odd ones and a sample of the rest."""
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
