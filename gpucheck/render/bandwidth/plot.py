"""The sweep over sizes as one SVG: bandwidth over copy size, a line for each path class."""

from collections.abc import Sequence
from html import escape
from math import log2

from gpucheck.model.bandwidth import BandwidthReport, SizePoint
from gpucheck.printable import of_printable

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 56, 56
COLOURS = ("#1a7f5a", "#b3541e", "#2f5fb3", "#8a3a8f", "#7a6a10", "#b02a37")
UNITS = ("B", "KiB", "MiB", "GiB")
GRID_LINES = 5


@of_printable
def to_svg(report: BandwidthReport) -> str:
    """A standalone SVG. Sizes are a logarithmic axis, GB/s a linear one from zero."""
    sizes = sorted({point.size_bytes for point in report.sizes})
    top = _round_up(max(point.gb_s for point in report.sizes))
    lines: dict[tuple[int, int, str | None], list[SizePoint]] = {}
    for point in report.sizes:
        lines.setdefault((point.src, point.dst, point.cls), []).append(point)

    def x(size: int) -> float:
        span = log2(sizes[-1] / sizes[0]) or 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * log2(size / sizes[0]) / span

    def y(gb_s: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * gb_s / top

    title = f"Copy size and bandwidth, {escape(report.host)}" + (" - SIMULATED" if report.simulated else "")
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="600" fill="#1c2430">{title}</text>',
        f'<text x="{LEFT}" y="44" fill="#5a6472">{escape(report.kind)}</text>',
    ]
    for step in range(GRID_LINES + 1):
        value = top * step / GRID_LINES
        body.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e3e6ea"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#5a6472">{value:g}</text>'
        )
    grey, dark = 'text-anchor="middle" fill="#5a6472"', 'text-anchor="middle" fill="#1c2430"'
    body += [
        f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 20}" {grey}>{size_in_words(size)}</text>'
        for size in _ticks(sizes)
    ]
    body.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" {dark}>size of one copy</text>'
        f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" {dark}>'
        "GB/s (10^9 bytes per second)</text>"
    )
    for number, ((src, dst, cls), points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(point.size_bytes):.1f},{y(point.gb_s):.1f}" for point in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [
            f'<circle cx="{x(p.size_bytes):.1f}" cy="{y(p.gb_s):.1f}" r="3" fill="{colour}">'
            f"<title>{size_in_words(p.size_bytes)}: {p.gb_s:g} GB/s</title></circle>"
            for p in points
        ]
        kind = "local" if src == dst else cls or "?"
        name = f"{report.devices[src].index} to {report.devices[dst].index} ({kind})"
        at = TOP + 14 + 22 * number
        body.append(
            f'<line x1="{WIDTH - RIGHT + 16}" x2="{WIDTH - RIGHT + 38}" y1="{at}" y2="{at}" stroke="{colour}" '
            f'stroke-width="2"/><text x="{WIDTH - RIGHT + 46}" y="{at + 4}" fill="#1c2430">{escape(name)}</text>'
        )
    return "\n".join([*body, "</svg>"]) + "\n"


def size_in_words(size: int) -> str:
    """``4 KiB``: powers of 1024, as memory is counted."""
    unit = 0
    value = float(size)
    while value >= 1024 and unit < len(UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.3g} {UNITS[unit]}"


def _ticks(sizes: Sequence[int]) -> list[int]:
    """As many sizes as fit below the axis."""
    every = -(-len(sizes) // 9)
    return list(sizes[::every])


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if digit * power >= value:
                return digit * power
        power *= 10
