"""A host or a metric over time: lines of blocks in a terminal, panels in SVG."""

from collections.abc import Iterator

import click

from gpucheck.model import History, Series, Verdict, metric_title
from gpucheck.printable import of_printable
from gpucheck.render.chart import LABEL, STYLE, Plot, Scale
from gpucheck.render.json import to_json
from gpucheck.render.svg import Point, document, element, text
from gpucheck.render.words import COLOUR, simulated_mark

__all__ = ["to_json", "to_svg", "to_text"]

BLOCKS = "▁▂▃▄▅▆▇█"
LETTER = {Verdict.PASS: "P", Verdict.WARN: "W", Verdict.FAIL: "F", Verdict.UNKNOWN: "?", Verdict.SKIP: "-"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 820, 190, 86, 46, 20


@of_printable
def to_text(history: History) -> str:
    """One line of blocks per series, with the numbers that blocks cannot show."""
    mark = f"  {simulated_mark()}" if history.simulated else ""
    lines = [click.style(history.name, bold=True) + mark]
    if history.verdicts:
        letters = "".join(click.style(LETTER[v], fg=COLOUR[v], bold=True) for _, v in history.verdicts)
        first, last = history.verdicts[0][0], history.verdicts[-1][0]
        lines.append(f"verdicts  {letters}  {first} to {last}")
    for series in history.series:
        lines += ["", *_series(series)]
    return "\n".join(lines) + "\n"


def sparkline(values: list[float]) -> str:
    """Return one block character per value, from lowest to highest; equal values are in the middle."""
    low, high = min(values), max(values)
    if high == low:
        return BLOCKS[3] * len(values)
    return "".join(BLOCKS[min(int((v - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)] for v in values)


@of_printable
def to_svg(history: History) -> str:
    """Return one panel per metric: the line, the range of the group, and a ring where hosts are outliers."""
    height = TOP + HEIGHT * max(1, len(history.series))
    title = f"{history.name} over time" + (" (SIMULATED)" if history.simulated else "")
    parts = [text(title, Point(20, 26), 13, bold=True)]
    for i, series in enumerate(history.series):
        parts += _panel(series, TOP + i * HEIGHT)
    if not history.series:
        parts.append(text("Nothing was measured in the kept merges.", Point(20, TOP + 20), LABEL, class_="dim"))
    return document(WIDTH, height, title, *parts, style=STYLE)


def _series(series: Series) -> Iterator[str]:
    values = [point.value for point in series.points]
    among = f"  {series.group}" if series.group else ""
    yield f"{series.metric}{among}"
    if len(values) == 1:
        yield f"  {values[0]:.4g} in the only merge"
    else:
        change = f", {100 * (values[-1] - values[0]) / abs(values[0]):+.1f} % since the first" if values[0] else ""
        yield f"  {sparkline(values)}  now {values[-1]:.4g}, between {min(values):.4g} and {max(values):.4g}{change}"
    odd = [f"{point.odd} on {point.at}" for point in series.points if point.odd]
    if odd:
        yield f"  outliers: {', '.join(odd[-5:])}"


def _panel(series: Series, top: float) -> Iterator[str]:
    points = list(enumerate(series.points))
    low = [(i, p.value if p.low is None else p.low) for i, p in points]
    high = [(i, p.value if p.high is None else p.high) for i, p in points]
    lowest, highest = min(value for _, value in low), max(value for _, value in high)
    pad = (highest - lowest) * 0.08 or abs(highest) * 0.05 or 1.0
    # A single point is in the middle.
    across, up = Scale(0, len(points) - 1), Scale(lowest - pad, highest + pad)
    plot = Plot(LEFT, top + 30, WIDTH - RIGHT, top + HEIGHT - 44, across, up)
    yield text(f"{metric_title(series.metric)}  {series.group or ''}", Point(20, top + 16), 13, bold=True)
    yield from plot.rows(lambda value: f"{value:,.10g}")
    if series.points[0].low is not None:
        yield plot.band(low, high)
    yield plot.line((i, point.value) for i, point in points)
    for i, point in points:
        yield plot.dot(i, point.value, f"{point.at}: {point.value:.6g}")
        if point.odd:
            at = plot.at(i, point.value)
            yield element("circle", cx=at.x, cy=at.y, r=7, class_="odd")
    yield text(series.points[0].at, Point(LEFT, plot.bottom + 20), LABEL, class_="dim")
    if len(points) > 1:
        last = Point(WIDTH - RIGHT, plot.bottom + 20)
        yield text(series.points[-1].at, last, LABEL, class_="dim", text_anchor="end")
