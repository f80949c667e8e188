"""The timeline: a trace that a viewer takes, and a picture that is well-formed and true to scale."""

import json
from xml.etree import ElementTree

from gpucheck.render.smoke.timeline import Span, to_chrome_trace, to_svg

SPANS = [
    Span(rank, phase, step, start + rank * 0.001, seconds)
    for rank in (0, 1)
    for phase, step, start, seconds in (
        ("import", None, 0.0, 3.0),
        *(
            (phase, s, 3.0 + s * 0.01 + n * 0.002, 0.002)
            for s in range(1, 9)
            for n, phase in enumerate(("load", "forward"))
        ),
        ("reference", 1, 3.2, 0.1),
    )
]
SVG = "{http://www.w3.org/2000/svg}"


def test_the_trace_has_every_phase_in_microseconds_and_a_row_a_rank():
    trace = json.loads(to_chrome_trace("torch ddp", SPANS, simulated=True))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]

    assert len(events) == len(SPANS)
    assert events[0] | {"args": {}} == {
        "ph": "X",
        "name": "import",
        "cat": "run",
        "pid": 0,
        "tid": 0,
        "ts": 0.0,
        "dur": 3e6,
        "args": {},
    }
    assert {event["tid"] for event in events} == {0, 1}
    assert {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"} == {"rank 0", "rank 1"}
    assert trace["otherData"]["simulated"] is True


def test_the_picture_shows_the_run_and_a_few_steps_of_its_middle():
    root = ElementTree.fromstring(to_svg("torch <ddp>", SPANS, simulated=False))  # noqa: S314  # our own
    words = [text.text for text in root.iter(f"{SVG}text")]

    assert words[0] == "torch <ddp>"
    assert "entire run, 3.30 s" in words
    assert any(str(word).startswith("steps 5 to 8, ") for word in words)
    assert words.count("rank 0") == words.count("rank 1") == 2
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    assert len(bars) == len(SPANS) + 2 * 4 * 2
    width = float(root.get("width", ""))
    assert all(
        float(bar.get("x", "")) >= 0 and float(bar.get("x", "")) + float(bar.get("width", "")) <= width for bar in bars
    )


def test_a_simulated_machine_is_named_in_the_picture():
    assert "SIMULATED" in to_svg("torch ddp", SPANS, simulated=True)
    assert "SIMULATED" not in to_svg("torch ddp", SPANS, simulated=False)


def test_a_run_without_steps_is_one_panel():
    root = ElementTree.fromstring(to_svg("x", SPANS[:1], simulated=False))  # noqa: S314  # our own
    assert [t.text for t in root.iter(f"{SVG}text")].count("rank 0") == 1
