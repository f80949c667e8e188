"""Charts as SVG: scales, axes with round numbers, lines and dots, and one set of colors for light and dark."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpucheck.render.svg import LIGHT as REGULAR
from gpucheck.render.svg import Point, element, plain, text

# No bandwidth or latency is larger; a larger value comes from an edited file.
MOST = 1e15
LABEL = 12
LIGHT = ("#0b6bcb", "#b3541e", "#1a7f5a", "#8a3a8f", "#7a6a10", "#b02a37")
DARK = ("#6cb2ff", "#f0955a", "#4fc79a", "#d58ada", "#cdbb4a", "#ff8a80")


def _series(colors: Sequence[str]) -> str:
    return "".join(f".line{n}{{stroke:{color}}}.dot{n}{{fill:{color}}}" for n, color in enumerate(colors))


STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#1f2933}.dim{fill:#5f6b7a}.grid{stroke:#d5dbe3}.back{fill:#fff}"
    ".line{fill:none;stroke-width:2}.rest{stroke:#8a94a3;stroke-width:1.2}"
    f".onbar{{fill:#1f2933}}{_series(LIGHT)}"
    "@media (prefers-color-scheme:dark){text{fill:#e6eaf0}.dim{fill:#9aa7b7}.grid{stroke:#39424f}.back{fill:#151a21}"
    f".onbar{{fill:#1f2933}}{_series(DARK)}}}"
)


class Scale:
    """One axis, linear or logarithmic. Numbers outside of it are placed at its nearest end."""

    def __init__(self, low: float, high: float, *, logarithmic: bool = False) -> None:
        self.low, self.high, self.logarithmic = max(-MOST, low), min(MOST, high), logarithmic

    def part(self, number: float) -> float:
        """Return the position of a number, from 0 to 1; the middle if the axis has no length."""
        if self.low >= self.high:
            return 0.5
        number = max(self.low, min(self.high, number))
        if self.logarithmic:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers on the axis, `most` of them at the most."""
        if self.low >= self.high:
            return [self.low]
        if not self.logarithmic:
            step = round_step(self.high - self.low, most)
            # An end that is a tick itself is one in spite of rounding.
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [n * step for n in range(first, last + 1)]
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for parts in ((1, 2, 5), (1, 3), (1,)):
            found = [part * 10.0**e for e in exponents for part in parts if self.low <= part * 10.0**e <= self.high]
            if len(found) <= most:
                break
        return found[:: math.ceil(len(found) / most) or 1]


def round_step(length: float, most: int = 6) -> float:
    """Return the distance of `most` ticks on an axis of this length: 1, 2 or 5 times a power of ten."""
    rough = length / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    return next(size * part for part in (1, 2, 5, 10) if size * part >= rough)


def line_class(series: int) -> str:
    """Return the classes of a line. series: number of its color."""
    return f"line line{series % len(LIGHT)}"


def from_zero(highest: float) -> Scale:
    """Return a linear scale from zero to the tick above the highest number."""
    if not highest > 0:
        return Scale(0.0, 1.0)
    step = round_step(min(highest, MOST))
    return Scale(0.0, math.ceil(min(highest, MOST) / step) * step)


class Plot(NamedTuple):
    """The area between the axes, in user units with y downwards, and its scales."""

    left: float
    top: float
    right: float
    bottom: float
    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> Point:
        """Return the place of a pair of values."""
        across, up = self.x.part(x), self.y.part(y)
        return Point(self.left + (self.right - self.left) * across, self.bottom - (self.bottom - self.top) * up)

    def rows(self, label: Callable[[float], str]) -> list[str]:
        """Return the horizontal grid lines of the y axis, each with its label on the left."""
        parts = []
        for value in self.y.ticks():
            y = self.at(self.x.low, value).y
            parts.append(element("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(text(label(value), Point(self.left - 8, y + 4), LABEL, class_="dim", text_anchor="end"))
        return parts

    def columns(
        self, values: Iterable[float], label: Callable[[float], str], room: float, *, grid: bool = False
    ) -> list[str]:
        """Return the labels of the x axis below the plot. room: where the drawing ends. grid: with vertical lines."""
        parts = []
        for value in values:
            x = self.at(value, self.y.low).x
            if grid:
                parts.append(element("line", x1=x, x2=x, y1=self.top, y2=self.bottom, class_="grid"))
            anchor = "end" if x > room - LABEL * len(label(value)) * REGULAR / 2 else "middle"
            parts.append(text(label(value), Point(x, self.bottom + 18), LABEL, class_="dim", text_anchor=anchor))
        return parts

    def line(self, values: Iterable[tuple[float, float]], series: int = 0, *, class_: str = "") -> str:
        """Return a line through pairs of values. series: number of its color. class_: instead of the number's."""
        points = " ".join(f"{at.x:.1f},{at.y:.1f}" for at in (self.at(x, y) for x, y in values))
        return element("polyline", points=points, class_=class_ or line_class(series))

    def dot(self, x: float, y: float, title: str, series: int = 0) -> str:
        """Return a dot whose title is shown when the pointer is on it."""
        at = self.at(x, y)
        return element(
            "circle", element("title", plain(title)), cx=at.x, cy=at.y, r=3, class_=f"dot{series % len(LIGHT)}"
        )
