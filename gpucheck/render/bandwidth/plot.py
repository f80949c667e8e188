"""The sweep over sizes as one SVG: bandwidth over copy size, a line for each path class."""

from gpucheck.model.bandwidth import BandwidthReport, SizePoint
from gpucheck.printable import of_printable
from gpucheck.render.chart import STYLE, Plot, Scale, from_zero, line_class
from gpucheck.render.svg import Point, document, element, text
from gpucheck.render.words import describe_size

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 56, 56
# Labels that fit below the axis.
MOST_SIZES = 9


@of_printable
def to_svg(report: BandwidthReport) -> str:
    """Return a standalone SVG. Sizes are a logarithmic axis, GB/s a linear one from zero."""
    sizes = sorted({point.size_bytes for point in report.sizes})
    lines: dict[tuple[int, int, str | None], list[SizePoint]] = {}
    for point in report.sizes:
        lines.setdefault((point.src, point.dst, point.cls), []).append(point)
    across, up = Scale(sizes[0], sizes[-1], logarithmic=True), from_zero(max(point.gb_s for point in report.sizes))
    plot = Plot(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM, across, up)
    title = f"Copy size and bandwidth, {report.host}" + (" - SIMULATED" if report.simulated else "")
    middle = (plot.top + plot.bottom) / 2
    parts = [
        text(title, Point(LEFT, 24), 16, bold=True, room=WIDTH - LEFT),
        text(report.kind, Point(LEFT, 44), 13, class_="dim", room=WIDTH - LEFT),
        *plot.rows(lambda value: f"{value:g}"),
        *plot.columns(sizes[:: -(-len(sizes) // MOST_SIZES)], lambda size: describe_size(int(size)), WIDTH),
        text("size of one copy", Point((plot.left + plot.right) / 2, HEIGHT - 12), 13, text_anchor="middle"),
        text(
            "GB/s (10^9 bytes per second)",
            Point(0, 0),
            13,
            text_anchor="middle",
            transform=f"translate(18 {middle}) rotate(-90)",
        ),
    ]
    for number, ((src, dst, cls), points) in enumerate(lines.items()):
        parts.append(plot.line(((p.size_bytes, p.gb_s) for p in points), number))
        parts += [
            plot.dot(p.size_bytes, p.gb_s, f"{describe_size(p.size_bytes)}: {p.gb_s:g} GB/s", number) for p in points
        ]
        kind = "local" if src == dst else cls or "?"
        name = f"{report.devices[src].index} to {report.devices[dst].index} ({kind})"
        y = TOP + 14.0 + 22 * number
        key = {"x1": plot.right + 16, "x2": plot.right + 38, "y1": y, "y2": y}
        parts.append(element("line", **key, class_=line_class(number)))
        parts.append(text(name, Point(plot.right + 46, y + 4), 13, room=RIGHT - 46))
    return document(WIDTH, HEIGHT, title, *parts, style=STYLE)
