"""The explanations that a diagnosis weighed, for a page: the ranking, and charts of predicted against measured.

A page embeds it with `ranking=ranking_html.view(judgement)` and `styles=(..., *ranking_html.STYLES)` for html.page(),
and in its template `{% from "ranking.html.j2" import ranking_section %}{{ ranking_section(ranking) }}`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.model.diagnosis.ranking import Explanation, Judgement
from gpucheck.render.chart import MOST, Scale
from gpucheck.render.ranking.predicted import MISFITS, Block, Row, blocks, percent, readings, span
from gpucheck.render.ranking.text import FAULTLESS, SHOWN, cause_names, likely
from gpucheck.render.words import plural

STYLES = ("ranking.css",)
ROWS = 24
# Values that lie nearer to each other than this part of the axis, in percent, are one mark.
MARK = 0.4
MARKS_AT_AXIS = 8
# A less probable second explanation is folded.
WORTH = 0.05
# From this ratio of the largest to the smallest number on the scale is logarithmic.
LOGARITHMIC = 12.0
FIT = {"yes": "good", "nearly": "near", "no, lower": "bad", "no, higher": "bad"}
FIT_TEXT = {
    "yes": "fits",
    "nearly": "nearly fits",
    "no, lower": "lower than predicted",
    "no, higher": "higher than predicted",
}


class Mark(NamedTuple):
    """A measured value on the axis. x: in percent, with its sign. kind: inside, just outside, or far."""

    x: str
    kind: str


class ChartRow(NamedTuple):
    """Numbers with one prediction. x, width: of the bar, in percent. about: the row in one sentence, for a reader."""

    where: str
    basis: str
    numbers: str
    predicted: str
    measured: str
    fit: str
    fit_text: str
    x: str
    width: str
    marks: list[Mark]
    about: str


class Chart(NamedTuple):
    """One quantity. scale: unit and kind of the axis; axis: (x, label, anchor) of its lines. left: rows not shown."""

    title: str
    scale: str
    axis: list[tuple[str, str, str]]
    rows: list[ChartRow]
    left: int


class Place(NamedTuple):
    """One explanation in the ranking."""

    probability: str
    width: str
    words: str
    causes: list[str]
    keys: list[str]


class Story(NamedTuple):
    """What one explanation predicted. is_open: whether its values are shown at once."""

    number: int
    probability: str
    is_open: bool
    words: str
    charts: list[Chart]
    readings: tuple[str, ...]


class Ranking(NamedTuple):
    """All that ranking.html.j2 shows."""

    places: list[Place]
    stories: list[Story]
    decided: str


class Axis(Scale):
    """The scale that all charts of one quantity share, so that they can be compared."""

    def __init__(self, numbers: Iterable[float]) -> None:
        """numbers: everything that must be on it."""
        finite = [max(-MOST, min(MOST, number)) for number in numbers if not math.isnan(number)] or [0.0, 1.0]
        least, most = min(finite), max(*finite, 0.0)
        logarithmic = least > 0 and most / least >= LOGARITHMIC
        low = least / 1.15 if logarithmic else min(0.0, least)
        super().__init__(low, most * 1.15 if logarithmic else low + (most - low) * 1.05 or 1.0, logarithmic=logarithmic)

    def at(self, number: float) -> float:
        """Return the position of a number, from 0 to 100."""
        return 100 * self.part(number)


def view(judgement: Judgement | None) -> Ranking | None:
    """Return what the template shows; None if nothing was weighed."""
    worth = likely(judgement.ranking) if judgement is not None else ()
    if judgement is None or not worth:
        return None
    shown = worth[:SHOWN]
    found = [blocks(one) for one in shown]
    axes = _axes(block for some in found for block in some)
    stories = [
        Story(
            number=number,
            probability=percent(one.probability),
            is_open=number == 1 or one.probability >= WORTH,
            words=one.words,
            charts=[_chart(block, axes[block.quantity]) for block in some],
            readings=tuple(readings(one)),
        )
        for number, (one, some) in enumerate(zip(shown, found, strict=True), 1)
        if some or one.readings
    ]
    places = [_place(one, judgement.gpus) for one in worth]
    # With one explanation there is no second to distinguish it from.
    return Ranking(places, stories, judgement.decided if len(places) > 1 else "")


def _place(one: Explanation, gpus: Sequence[str]) -> Place:
    return Place(
        probability=percent(one.probability),
        width=_percent(100 * one.probability),
        words=one.words,
        causes=cause_names(one, gpus) or [FAULTLESS] * (not one.words.startswith(FAULTLESS)),
        keys=list(dict.fromkeys(cause for cause, _ in one.causes)),
    )


def _axes(found: Iterable[Block]) -> dict[str, Axis]:
    numbers: dict[str, list[float]] = {}
    for block in found:
        for row in block.rows:
            numbers.setdefault(block.quantity, []).extend((row.low, row.high, row.values[0], row.values[-1]))
    return {quantity: Axis(some) for quantity, some in numbers.items()}


def _chart(block: Block, axis: Axis) -> Chart:
    places = [(axis.at(number), number) for number in axis.ticks(MARKS_AT_AXIS)]
    return Chart(
        title=block.title,
        scale=f"{block.unit}, logarithmic scale" if axis.logarithmic else block.unit,
        axis=[
            (_percent(at), f"{number:g}", "start" if at < 4 else "end" if at > 96 else "middle")
            for at, number in places
        ],
        rows=[_row(row, axis, block.unit) for row in block.rows[:ROWS]],
        left=max(0, len(block.rows) - ROWS),
    )


def _row(row: Row, axis: Axis, unit: str) -> ChartRow:
    low, high = axis.at(row.low), axis.at(row.high)
    predicted, measured = span(row.low, row.high), span(row.values[0], row.values[-1])
    return ChartRow(
        where=row.where,
        basis=row.basis,
        numbers=plural(len(row.values), "value"),
        predicted=predicted,
        measured=measured,
        fit=FIT[row.fit],
        fit_text=FIT_TEXT[row.fit],
        x=_percent(low),
        width=_percent(max(high - low, MARK)),
        marks=_marks(row, axis),
        about=f"{row.where}: predicted {predicted} {unit}, measured {measured} {unit}, {FIT_TEXT[row.fit]}",
    )


def _marks(row: Row, axis: Axis) -> list[Mark]:
    """Values at one place are one mark: 72 GPUs have more pairs than a screen has points."""
    out = "far" if row.fit in MISFITS else "just"
    found: dict[tuple[int, str], Mark] = {}
    for value in row.values:
        at, kind = axis.at(value), out if value in row.outside else "inside"
        found.setdefault((round(at / MARK), kind), Mark(_percent(at), kind))
    return list(found.values())


def _percent(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"
