"""Charts as SVG for a page: scales, axes with round numbers, and lines, whose colors are in pages/chart.css."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpucheck.render.svg import LIGHT, Point, element, text

# No bandwidth or latency is larger; a larger value comes from an edited file.
MOST = 1e15
LABEL = 12


class Scale:
    """One axis. Numbers outside of it are placed at its nearest end."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = max(-MOST, low), min(MOST, high)

    def part(self, number: float) -> float:
        """Return the position of a number, from 0 to 1; the middle if the axis has no length."""
        if self.low >= self.high:
            return 0.5
        return (max(self.low, min(self.high, number)) - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers on the axis, `most` of them at the most."""
        if self.low >= self.high:
            return [self.low]
        step = round_step(self.high - self.low, most)
        # An end that is a tick itself is one in spite of rounding.
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


def round_step(length: float, most: int = 6) -> float:
    """Return the distance of `most` ticks on an axis of this length: 1, 2 or 5 times a power of ten."""
    rough = length / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    return next(size * part for part in (1, 2, 5, 10) if size * part >= rough)


def from_zero(highest: float) -> Scale:
    """Return a scale from zero to the tick above the highest number."""
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

    def columns(self, label: Callable[[float], str], room: float) -> list[str]:
        """Return the labels of the x axis below the plot. room: where the drawing ends."""
        parts = []
        for value in self.x.ticks():
            x = self.at(value, self.y.low).x
            anchor = "end" if x > room - LABEL * len(label(value)) * LIGHT / 2 else "middle"
            parts.append(text(label(value), Point(x, self.bottom + 18), LABEL, class_="dim", text_anchor=anchor))
        return parts

    def line(self, values: Iterable[tuple[float, float]], class_: str) -> str:
        points = " ".join(f"{at.x:.1f},{at.y:.1f}" for at in (self.at(x, y) for x, y in values))
        return element("polyline", points=points, class_=class_)
