"""Clock, power and temperature of every GPU during the run, as one SVG with three plots."""

from collections.abc import Sequence

from gpucheck.model.compute import ComputeDevice, ComputeReport, Sample
from gpucheck.printable import of_printable
from gpucheck.render.chart import STYLE, Plot, Scale, from_zero, line_class
from gpucheck.render.svg import Point, document, element, text

WIDTH, LEFT, RIGHT, TOP, EACH, GAP = 760, 70, 130, 60, 120, 46
PLOTS = (("sm_clock_mhz", "SM clock, MHz"), ("power_w", "power, W"), ("temperature_c", "temperature, C"))


@of_printable
def to_svg(report: ComputeReport) -> str:
    """Return a standalone SVG. Seconds of load are the x axis of all plots."""
    title = f"GPUs under load, {report.host}" + (" - SIMULATED" if report.simulated else "")
    return document(
        WIDTH, height(), title, text(title, Point(LEFT, 24), 16, bold=True), *drawn(report.gpus), style=STYLE
    )


def height() -> float:
    """Return the height of the drawing."""
    return TOP + len(PLOTS) * (EACH + GAP) + 10


def drawn(gpus: Sequence[ComputeDevice]) -> list[str]:
    """Return the plots and the legend."""
    traced = [gpu for gpu in gpus if gpu.traces]
    if not traced:
        return [text("no readings: NVML was not read during the run", Point(LEFT, TOP), 13, class_="dim")]
    across = Scale(0.0, max(sample.at for gpu in traced for sample in gpu.traces))
    parts = []
    for number, (name, label) in enumerate(PLOTS):
        top = TOP + number * (EACH + GAP)
        lines = [_line(gpu.traces, name) for gpu in traced]
        highest = max((value for line in lines for _, value in line), default=0.0)
        plot = Plot(LEFT, top, WIDTH - RIGHT, top + EACH, across, from_zero(highest))
        parts += [text(label, Point(LEFT, top - 8), 13), *plot.rows(lambda value: f"{value:g}")]
        parts += plot.columns(across.ticks(), lambda value: f"{value:g} s")
        parts += [plot.line(line, series) for series, line in enumerate(lines) if line]
    for series, gpu in enumerate(traced):
        y = TOP + 10.0 + 20 * series
        parts.append(
            element("line", x1=WIDTH - RIGHT + 12, x2=WIDTH - RIGHT + 32, y1=y, y2=y, class_=line_class(series))
        )
        parts.append(text(f"GPU {gpu.index}", Point(WIDTH - RIGHT + 38, y + 4), 13))
    return parts


def _line(samples: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    return [(sample.at, value) for sample in samples if (value := getattr(sample, name)) is not None]
