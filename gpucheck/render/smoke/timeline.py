"""Phases of ranks as a Chrome trace (JSON for a trace viewer) and as an SVG Gantt chart (a picture for a report)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

import msgspec

from gpucheck.printable import of_printable

WIDTH, LEFT, RIGHT, ROW, GAP = 1200, 110, 20, 26, 8
ZOOM_STEPS = 4
FONT = "font-family='sans-serif'"
# Told apart by brightness as well as by hue.
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
    """Two panels: the whole run, and a few steps from its middle, where the phases of a step can be seen."""
    middle = _middle_steps(spans)
    panels = [("whole run", list(spans))]
    if middle:
        first, last = middle[0].step, max(span.step or 0 for span in middle)
        panels.append((f"steps {first} to {last}", middle))
    head = f"{title}, SIMULATED hardware" if simulated else title
    body, y = [], 60
    for name, shown in panels:
        part, y = _panel(name, shown, y)
        body += part
    used = [
        phase for phase in (*COLOUR, "other") if phase in {s.phase if s.phase in COLOUR else "other" for s in spans}
    ]
    legend = list(_legend(used, y))
    height = y + 24 * (1 + (len(used) - 1) // 8) + 10
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}'"
            f" viewBox='0 0 {WIDTH} {height}'>",
            f"<title>{escape(head)}</title>",
            f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
            f"<text x='{LEFT}' y='32' {FONT} font-size='18' font-weight='bold'>{escape(head)}</text>",
            *body,
            *legend,
            "</svg>",
            "",
        ]
    )


def _middle_steps(spans: Sequence[Span]) -> list[Span]:
    """A few consecutive steps of the training itself, from its middle: the first ones warm up."""
    made = sorted({span.step for span in spans if span.step is not None and span.phase in ("load", "copy")})
    if not made:
        return []
    begin = made[len(made) // 2]
    chosen = {step for step in made if begin <= step < begin + ZOOM_STEPS}
    return [s for s in spans if s.step in chosen and s.phase not in ("reference", "repeat")]


def _panel(name: str, spans: Sequence[Span], y: int) -> tuple[list[str], int]:
    start = min(span.start for span in spans)
    whole = max(max(span.start + span.seconds for span in spans) - start, 1e-9)
    scale = (WIDTH - LEFT - RIGHT) / whole
    ranks = sorted({span.rank for span in spans})
    bottom = y + 12 + len(ranks) * (ROW + GAP)
    parts = [f"<text x='{LEFT}' y='{y}' {FONT} font-size='13'>{escape(name)}, {_duration(whole)}</text>"]
    parts += _axis(start, whole, y + 8, bottom)
    for row, rank in enumerate(ranks):
        top = y + 12 + row * (ROW + GAP)
        parts.append(f"<text x='10' y='{top + 18}' {FONT} font-size='13'>rank {rank}</text>")
        for span in spans:
            if span.rank == rank:
                parts.append(_bar(span, LEFT + (span.start - start) * scale, top, span.seconds * scale))
    return parts, bottom + 50


def _bar(span: Span, x: float, top: int, width: float) -> str:
    step = f" in step {span.step}" if span.step is not None else ""
    told = escape(f"rank {span.rank}: {span.phase}{step}, {_duration(span.seconds)}")
    fill = COLOUR.get(span.phase, OTHER)
    bar = f"<rect x='{x:.2f}' y='{top}' width='{max(width, 0.2):.2f}' height='{ROW}' fill='{fill}'>"
    label = ""
    if width > 8 * len(span.phase):
        label = f"<text x='{x + 4:.1f}' y='{top + 17}' {FONT} font-size='12'>{escape(span.phase)}</text>"
    return f"{bar}<title>{told}</title></rect>{label}"


def _axis(start: float, whole: float, top: int, bottom: int) -> Iterator[str]:
    ticks = 6
    for tick in range(ticks + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / ticks
        yield f"<line x1='{x:.1f}' y1='{top}' x2='{x:.1f}' y2='{bottom}' stroke='#cccccc'/>"
        anchor = "end" if tick == ticks else "middle"
        words = _duration(start + whole * tick / ticks) if whole >= 1 else f"+{_duration(whole * tick / ticks)}"
        yield f"<text x='{x:.1f}' y='{bottom + 14}' {FONT} font-size='11' text-anchor='{anchor}'>{words}</text>"


def _legend(phases: Sequence[str], y: int) -> Iterator[str]:
    for place, phase in enumerate(phases):
        x, top = LEFT + 130 * (place % 8), y + 24 * (place // 8)
        yield f"<rect x='{x}' y='{top - 11}' width='14' height='14' fill='{COLOUR.get(phase, OTHER)}'/>"
        yield f"<text x='{x + 20}' y='{top}' {FONT} font-size='12'>{escape(phase)}</text>"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
