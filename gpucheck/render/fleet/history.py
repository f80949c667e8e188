"""A host or a metric over time: lines of blocks in a terminal, panels in SVG."""

import math
from collections.abc import Iterator
from xml.etree import ElementTree

import click

from gpucheck.model import History, Series, Verdict
from gpucheck.printable import of_printable
from gpucheck.render.json import to_json
from gpucheck.render.words import COLOUR, simulated_mark

__all__ = ["to_json", "to_svg", "to_text"]

BLOCKS = "▁▂▃▄▅▆▇█"
LETTER = {Verdict.PASS: "P", Verdict.WARN: "W", Verdict.FAIL: "F", Verdict.UNKNOWN: "?", Verdict.SKIP: "-"}
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 820, 190, 86, 46, 20
STYLE = """
text{font:12px system-ui,sans-serif;fill:#1f2933} .dim{fill:#5f6b7a} .title{font-weight:600;font-size:13px}
.line{fill:none;stroke:#0b6bcb;stroke-width:2} .band{fill:#0b6bcb;opacity:.14} .grid{stroke:#d5dbe3} .dot{fill:#0b6bcb}
.odd{fill:none;stroke:#b42318;stroke-width:2} .back{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e6eaf0}.dim{fill:#9aa7b7}.grid{stroke:#39424f}.back{fill:#151a21}
.line{stroke:#6cb2ff}.band{fill:#6cb2ff}.dot{fill:#6cb2ff}.odd{stroke:#ff8a80}}
"""


@of_printable
def to_text(history: History) -> str:
    """A line of blocks a series, with the numbers that a line of blocks cannot say."""
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
    """A block a value, from the lowest to the highest; all alike are in the middle."""
    low, high = min(values), max(values)
    if high == low:
        return BLOCKS[3] * len(values)
    return "".join(BLOCKS[min(int((v - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)] for v in values)


@of_printable
def to_svg(history: History) -> str:
    """One panel a series: the line, the range of the group, and a ring where hosts stood out."""
    height = TOP + HEIGHT * max(1, len(history.series))
    root = ElementTree.Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height}", "role": "img"}
    )
    mark = " (SIMULATED)" if history.simulated else ""
    ElementTree.SubElement(root, "title").text = f"{history.name} over time{mark}"
    ElementTree.SubElement(root, "style").text = STYLE
    _add(root, "rect", {"class": "back", "width": WIDTH, "height": height})
    _text(root, 20, 26, f"{history.name}{mark}", "title")
    for i, series in enumerate(history.series):
        _panel(root, series, TOP + i * HEIGHT)
    if not history.series:
        _text(root, 20, TOP + 20, "Nothing was measured in the kept merges.", "dim")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


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


def _panel(root: ElementTree.Element, series: Series, top: int) -> None:
    points = series.points
    low = min(p.value if p.low is None else p.low for p in points)
    high = max(p.value if p.high is None else p.high for p in points)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = low - pad, high + pad
    plot = HEIGHT - 74

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / (len(points) - 1) if len(points) > 1 else 0.5)

    def y(value: float) -> float:
        return top + 30 + plot * (1 - (value - low) / (high - low))

    _text(root, 20, top + 16, f"{series.metric}  {series.group or ''}", "title")
    for value in _ticks(low, high):
        at = f"{y(value):.1f}"
        _add(root, "line", {"class": "grid", "x1": LEFT, "x2": WIDTH - RIGHT, "y1": at, "y2": at})
        _text(root, LEFT - 8, y(value) + 4, f"{value:.4g}", "dim", anchor="end")
    if points[0].low is not None:
        upper = [f"{x(i):.1f},{y(p.high if p.high is not None else p.value):.1f}" for i, p in enumerate(points)]
        lower = [f"{x(i):.1f},{y(p.low if p.low is not None else p.value):.1f}" for i, p in enumerate(points)]
        _add(root, "polygon", {"class": "band", "points": " ".join([*upper, *reversed(lower)])})
    _add(
        root,
        "polyline",
        {"class": "line", "points": " ".join(f"{x(i):.1f},{y(p.value):.1f}" for i, p in enumerate(points))},
    )
    for i, point in enumerate(points):
        dot = _add(root, "circle", {"class": "dot", "cx": f"{x(i):.1f}", "cy": f"{y(point.value):.1f}", "r": 3})
        ElementTree.SubElement(dot, "title").text = f"{point.at}: {point.value:.6g}"
        if point.odd:
            _add(root, "circle", {"class": "odd", "cx": f"{x(i):.1f}", "cy": f"{y(point.value):.1f}", "r": 7})
    bottom = top + 30 + plot + 20
    _text(root, LEFT, bottom, points[0].at, "dim")
    if len(points) > 1:
        _text(root, WIDTH - RIGHT, bottom, points[-1].at, "dim", anchor="end")


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers between the two."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(s for s in (step / 5, step / 2, step, step * 2, step * 5) if (high - low) / s <= 5)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _add(parent: ElementTree.Element, tag: str, attributes: dict[str, object]) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {key: str(value) for key, value in attributes.items()})


def _text(parent: ElementTree.Element, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
    element = _add(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind, "text-anchor": anchor})
    element.text = words
