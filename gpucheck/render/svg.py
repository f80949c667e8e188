"""SVG by hand: elements, text that fits, and boxes that flow. Strings are escaped here and nowhere else."""

import math
from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from gpucheck.printable import printable

BOLD, LIGHT = 0.64, 0.56
"""Width of an average character of a sans-serif face, in ems."""


class Point(NamedTuple):
    """In user units, y downwards."""

    x: float
    y: float


def element(tag: str, *inside: str, **attributes: object) -> str:
    """One element; ``class_`` is class, underscores become hyphens. inside: markup, already made by this module."""
    given = "".join(
        f" {name.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{given}/>"


def document(width: float, height: float, title: str, *inside: str, style: str = "", background: str = "back") -> str:
    """Return a complete SVG file. style: CSS rules. background: class of the rectangle behind everything."""
    rules = [element("style", style)] if style else []
    sheet = element("rect", width="100%", height="100%", class_=background)
    return (
        element(
            "svg",
            element("title", plain(title)),
            *rules,
            sheet,
            *inside,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            width=f"{width:.0f}",
            height=f"{height:.0f}",
            role="img",
        )
        + "\n"
    )


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else printable(str(value))


def width_of(words: str, size: int, *, bold: bool = False) -> float:
    """About how wide a line of text is."""
    return len(words) * size * (BOLD if bold else LIGHT)


def text(
    words: str, at: Point, size: int, *, room: float | None = None, bold: bool = False, **attributes: object
) -> str:
    """A line of text, cut with an ellipsis where it would be wider than `room`; hovering then shows it whole."""
    shown, title = words, ""
    if room is not None and width_of(words, size, bold=bold) > room:
        shown = words[: max(1, int(room / width_of("x", size, bold=bold)) - 1)] + "…"
        title = element("title", plain(words))
    return element(
        "text", plain(shown), title, x=at.x, y=at.y, font_size=size, font_weight="bold" if bold else None, **attributes
    )


def plain(words: str) -> str:
    """Words as content of an element."""
    return escape(printable(words))


def around(center: Point, radius: float, count: int) -> list[Point]:
    """`count` points on a circle, the first one at the top, clockwise."""
    angles = (2 * math.pi * n / count - math.pi / 2 for n in range(count))
    return [Point(center.x + radius * math.cos(a), center.y + radius * math.sin(a)) for a in angles]


class Size(NamedTuple):
    """Of a box."""

    width: float
    height: float


def flow(sizes: Iterable[Size], room: float, gap: float) -> tuple[list[Point], Size]:
    """Places boxes left to right and starts a new line where the next would be wider than `room`.

    The places, relative to a common corner, and the size of the whole.
    """
    places: list[Point] = []
    x = y = line = widest = 0.0
    for size in sizes:
        if x and x + size.width > room:
            x, y, line = 0.0, y + line + gap, 0.0
        places.append(Point(x, y))
        x, line = x + size.width + gap, max(line, size.height)
        widest = max(widest, x - gap)
    return places, Size(widest, y + line)
