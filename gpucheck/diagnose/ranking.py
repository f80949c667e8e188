"""The ranking for people: what the most probable explanations predicted, with what was seen."""

from collections.abc import Sequence
from math import exp, log

from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.readings import readings
from gpucheck.diagnose.score import log_likelihood
from gpucheck.diagnose.search import Ranked
from gpucheck.diagnose.world import World
from gpucheck.model.ranking import Explanation, Predicted

MOST, IN_DETAIL, LEAST = 12, 2, 1e-4
DECIBANS = 10 / log(10)
USUAL = 0.6


def explanations(ranking: Sequence[Ranked], numbers: Sequence[Number]) -> tuple[Explanation, ...]:
    """The first dozen; the first two with every number."""
    shown = [ranked for ranked in ranking[:MOST] if ranked.probability >= LEAST] or list(ranking[:1])
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


def words(world: World) -> str:
    """One line: the causes and where, or that nothing is wrong."""
    parts = [
        f"{i.cause or ('slow host memory' if i.check == 'host-copies' else 'unexplained')} at {i.subject}"
        + (f" ({i.seen})" if i.seen else "")
        for i in world.instances
    ]
    return "; ".join(parts) or "no fault: every link as it should be"


def decided(ranking: Sequence[Ranked], numbers: Sequence[Number]) -> str:
    """The number or reading that sets the first apart from the second; empty where nothing does."""
    if len(ranking) < 2:
        return ""
    first, second = ranking[0].world, ranking[1].world
    rows = [row for row in _predictions(first, second, numbers) if row.weight is not None]
    best = max(rows, key=lambda row: row.weight or 0.0, default=None)
    one = {r.words: r.log_probability for r in readings(first)}
    two = {r.words: r.log_probability for r in readings(second)}
    read = max(one, key=lambda name: one[name] - two.get(name, one[name]), default="")
    gain = DECIBANS * (one[read] - two.get(read, one[read])) if read else 0.0
    if best is not None and (best.weight or 0.0) >= max(gain, 1.0):
        pair = f"{best.a}-{best.b}" if best.b is not None else f"of GPU {best.a}"
        return f"{best.quantity} {pair}: {best.measured:.3g} measured, {best.middle:.3g} predicted ({best.basis})"
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
