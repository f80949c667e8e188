"""Phases of ranks as a Chrome trace (JSON for a trace viewer) and as an SVG Gantt chart (a picture for a report)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from gpucheck.printable import of_printable
from gpucheck.render.chart import LABEL, STYLE, Plot, Scale
from gpucheck.render.svg import Point, document, element, plain, text

WIDTH, LEFT, RIGHT, ROW, GAP = 1200, 110, 20, 26, 8
ZOOM_STEPS = 4
# Distinguished by brightness as well as by hue.
COLOUR = {
    "import": "#b8b8b8",
    "data": "#7f8fa9",
    "broadcast": "#6a51a3",
    "load": "#a6cee3",
    "copy": "#1f78b4",
    "forward": "#33a02c",
    "backward": "#b2df8a",
    "allreduce": "#e31a1c",
    "optimizer": "#ff7f00",
    "check": "#fdbf6f",
    "reference": "#cab2d6",
    "repeat": "#e8e0f0",
}
OTHER = "#dddddd"


class Span(NamedTuple):
    """A phase of a rank; seconds count from the start of the run. step None: outside the steps."""

    rank: int
    phase: str
    step: int | None
    start: float
    seconds: float


def to_chrome_trace(title: str, spans: Sequence[Span], *, simulated: bool) -> str:
    """Trace Event Format, complete events in microseconds: one thread a rank."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": title}},
        *(
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
            for rank in sorted({span.rank for span in spans})
        ),
    ]
    for span in spans:
        arguments = {} if span.step is None else {"step": span.step}
        events.append(
            {
                "ph": "X",
                "name": span.phase,
                "cat": "step" if span.step is not None else "run",
                "pid": 0,
                "tid": span.rank,
                "ts": round(span.start * 1e6, 1),
                "dur": round(span.seconds * 1e6, 1),
                "args": arguments,
            }
        )
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title, "simulated": simulated}}
    return msgspec.json.encode(trace).decode()


@of_printable
def to_svg(title: str, spans: Sequence[Span], *, simulated: bool) -> str:
    """Two panels: the entire run, and a few steps from its middle, where the phases of a step can be seen."""
    middle = _middle_steps(spans)
    panels = [("entire run", list(spans))]
    if middle:
        first, last = middle[0].step, max(span.step or 0 for span in middle)
        panels.append((f"steps {first} to {last}", middle))
    head = f"{title}, SIMULATED hardware" if simulated else title
    parts, y = [text(head, Point(LEFT, 32), 18, bold=True)], 60.0
    for name, shown in panels:
        panel, y = _panel(name, shown, y)
        parts += panel
    phases = {span.phase if span.phase in COLOUR else "other" for span in spans}
    used = [phase for phase in (*COLOUR, "other") if phase in phases]
    height = y + 24 * (1 + (len(used) - 1) // 8) + 10
    return document(WIDTH, height, head, *parts, *_legend(used, y), style=STYLE)


def _middle_steps(spans: Sequence[Span]) -> list[Span]:
    """A few consecutive steps of the training itself, from its middle: the first ones warm up."""
    made = sorted({span.step for span in spans if span.step is not None and span.phase in ("load", "copy")})
    if not made:
        return []
    begin = made[len(made) // 2]
    chosen = {step for step in made if begin <= step < begin + ZOOM_STEPS}
    return [s for s in spans if s.step in chosen and s.phase not in ("reference", "repeat")]


def _panel(name: str, spans: Sequence[Span], y: float) -> tuple[list[str], float]:
    start = min(span.start for span in spans)
    whole = max(max(span.start + span.seconds for span in spans) - start, 1e-9)
    ranks = sorted({span.rank for span in spans})
    # A short panel counts from its own start: the digits of the entire run would hide its own.
    first = start if whole >= 1 else 0.0
    across, rows = Scale(first, first + whole), Scale(0, len(ranks))
    plot = Plot(LEFT, y + 8, WIDTH - RIGHT, y + 12 + len(ranks) * (ROW + GAP), across, rows)
    parts = [text(f"{name}, {_duration(whole)}", Point(LEFT, y), 13)]
    parts += plot.columns(
        across.ticks(8), lambda at: _duration(at) if whole >= 1 else f"+{_duration(at)}", WIDTH, grid=True
    )
    for row, rank in enumerate(ranks):
        top = y + 12 + row * (ROW + GAP)
        parts.append(text(f"rank {rank}", Point(10, top + 18), 13))
        for span in spans:
            if span.rank == rank:
                begin = span.start - start + first
                x, end = (plot.at(at, 0).x for at in (begin, begin + span.seconds))
                parts.append(_bar(span, x, top, end - x))
    return parts, plot.bottom + 50


def _bar(span: Span, x: float, top: float, width: float) -> str:
    step = f" in step {span.step}" if span.step is not None else ""
    title = element("title", plain(f"rank {span.rank}: {span.phase}{step}, {_duration(span.seconds)}"))
    fill = COLOUR.get(span.phase, OTHER)
    bar = element("rect", title, x=x, y=top, width=max(width, 0.2), height=ROW, fill=fill)
    if width <= 8 * len(span.phase):
        return bar
    return bar + text(span.phase, Point(x + 4, top + 17), LABEL, class_="onbar")


def _legend(phases: Sequence[str], y: float) -> Iterator[str]:
    for place, phase in enumerate(phases):
        x, top = LEFT + 130.0 * (place % 8), y + 24 * (place // 8)
        yield element("rect", x=x, y=top - 11, width=14, height=14, fill=COLOUR.get(phase, OTHER))
        yield text(phase, Point(x + 20, top), LABEL)


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
