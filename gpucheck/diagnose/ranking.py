"""The ranking for people: what the most probable explanations predicted, with what was seen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log

from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.readings import readings
from gpucheck.diagnose.score import log_likelihood
from gpucheck.diagnose.search import Ranked
from gpucheck.diagnose.world import World
from gpucheck.model.diagnosis.ranking import Explanation, Predicted

MOST, IN_DETAIL, LEAST = 12, 2, 1e-4
DECIBANS = 10 / log(10)
USUAL = 0.6


def explanations(ranking: Sequence[Ranked], numbers: Sequence[Number]) -> tuple[Explanation, ...]:
    """The first dozen; the first two with every number. Those that read the same are one."""
    shown = _merged(ranking)[:MOST]
    found = []
    for place, ranked in enumerate(shown):
        rival = shown[1 - place].world if place < IN_DETAIL and len(shown) > 1 else None
        found.append(
            Explanation(
                causes=tuple((i.cause or "unexplained", i.subject) for i in ranked.world.instances),
                probability=round(ranked.probability, 4),
                words=words(ranked.world),
                predictions=_predictions(ranked.world, rival, numbers) if place < IN_DETAIL else (),
                readings=tuple(_readings(ranked.world)) if place < IN_DETAIL else (),
            )
        )
    return tuple(found)


def _merged(ranking: Sequence[Ranked]) -> list[Ranked]:
    """The explanations worth showing, most probable first, each for all that read the same.

    The one that findings follow remains the first.
    """
    found: dict[frozenset[str], Ranked] = {}
    for ranked in ranking:
        if ranked.probability >= LEAST or not found:
            parts = frozenset(_parts(ranked.world))
            same = found.get(parts)
            found[parts] = replace(same, probability=same.probability + ranked.probability) if same else ranked
    first, *others = found.values()
    return [first, *sorted(others, key=lambda ranked: -ranked.probability)]


def words(world: World) -> str:
    """One line: the causes and where, or that nothing is wrong."""
    return "; ".join(_parts(world)) or "no fault: every link as it should be"


def _parts(world: World) -> Iterator[str]:
    for instance in world.instances:
        unnamed = "slow host memory" if instance.check == "host-copies" else "unexplained"
        seen = f" ({instance.seen})" if instance.seen else ""
        yield f"{instance.cause or unnamed} at {_where(world.machine, instance)}{seen}"


def _where(m: Machine, instance: Instance) -> str:
    """An instance's subject, with GPUs by their index."""
    kind = instance.subject.partition(":")[0]
    if kind == "gpu":
        return next((f"GPU {i}" for i in range(m.count) if m.gpu_label(i) == instance.subject), instance.subject)
    if kind == "pair":
        names = ((m.pair_label(way), pair) for pair in m.pairs for way in (pair, pair[::-1]))
        return next((f"GPU {i}-{j}" for name, (i, j) in names if name == instance.subject), instance.subject)
    for group in instance.change.uplinks if kind == "host" else ():
        return f"the uplink of GPUs {', '.join(map(str, sorted(group)))}"
    return instance.subject


def decided(ranking: Sequence[Ranked], numbers: Sequence[Number]) -> str:
    """The number or reading that sets the first apart from the second; empty where nothing does."""
    shown = _merged(ranking)
    if len(shown) < 2:
        return ""
    first, second = shown[0].world, shown[1].world
    rows = [row for row in _predictions(first, second, numbers) if row.weight is not None]
    best = max(rows, key=lambda row: row.weight or 0.0, default=None)
    one = {r.words: r.log_probability for r in readings(first)}
    two = {r.words: r.log_probability for r in readings(second)}
    read = max(one, key=lambda name: one[name] - two.get(name, one[name]), default="")
    gain = DECIBANS * (one[read] - two.get(read, one[read])) if read else 0.0
    if best is not None and (best.weight or 0.0) >= max(gain, 1.0):
        gpus = f"GPU {best.a}" if best.b is None else f"GPU {best.a}-{best.b}"
        return f"{best.quantity} {gpus}: {best.measured:.3g} measured, {best.middle:.3g} predicted ({best.basis})"
    return read if gain >= 1.0 else ""


def _predictions(world: World, rival: World | None, numbers: Sequence[Number]) -> tuple[Predicted, ...]:
    rows = []
    for number in numbers:
        predicted = world.predict(number)
        if predicted is None:
            continue
        other = rival.predict(number) if rival else None
        weight = None
        if other is not None:
            gain = log_likelihood([(number.value, predicted)]) - log_likelihood([(number.value, other)])
            weight = round(DECIBANS * gain, 1)
        rows.append(
            Predicted(
                quantity=number.quantity,
                a=number.a,
                b=number.b,
                measured=round(exp(number.value), 3),
                low=round(predicted.low, 3),
                middle=round(predicted.median, 3),
                high=round(predicted.high, 3),
                basis=predicted.basis,
                weight=weight,
            )
        )
    return tuple(rows)


def _readings(world: World) -> list[str]:
    """What was read against expectation, a line each; the rest is counted."""
    every = list(readings(world))
    odd = [
        f"{r.words}: expected in {exp(r.log_probability):.0%} of such machines"
        for r in every
        if exp(r.log_probability) < USUAL
    ]
    usual = len(every) - len(odd)
    return [*odd, *([f"{usual} reading{'s' if usual != 1 else ''} as expected"] if usual else [])]
