"""Clock, power and temperature of every GPU during the run, as one SVG with three plots."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from gpucheck.model.compute import ComputeDevice, Sample
from gpucheck.render.chart import Plot, Scale, from_zero
from gpucheck.render.svg import Point, element, text

WIDTH, LEFT, RIGHT, TOP, EACH, GAP = 760, 70, 130, 60, 120, 46
PLOTS = (
    ("sm_clock_mhz", "SM clock, MHz"),
    ("memory_clock_mhz", "memory clock, MHz"),
    ("power_w", "power, W"),
    ("temperature_c", "temperature, \u00b0C"),
    ("memory_temperature_c", "memory temperature, \u00b0C"),
    ("throttled", "clock held by heat or power brake, 1 = yes"),
)
# Reasons that show a fault of cooling or power. Healthy GPUs reach their power limit under load.
HELD = frozenset({"hw-power-brake", "hw-slowdown", "hw-thermal", "sw-thermal"})
# Of more GPUs than there are colors, those that differ most have one; the rest is gray.
COLORED = 6
HOUR, MINUTE = 3600.0, 60.0
# Shorter runs are drawn in the smaller unit.
LEAST = 4
REST = "line rest"


def height(gpus: Sequence[ComputeDevice]) -> float:
    """Return the height of the plots of these GPUs, with the legend."""
    return TOP + max(1, len(_plots(gpus))) * (EACH + GAP) + 10


def _plots(gpus: Sequence[ComputeDevice]) -> list[tuple[str, str]]:
    """Return what at least one GPU reported. Many have no memory temperature; healthy ones are not throttled."""
    return [
        (name, label)
        for name, label in PLOTS
        if any((any if name == "throttled" else len)(_values(gpu, name)) for gpu in gpus)
    ]


def drawn(gpus: Sequence[ComputeDevice]) -> list[str]:
    traced = [gpu for gpu in gpus if gpu.traces]
    if not traced:
        return [text("no readings: NVML was not read during the run", Point(LEFT, TOP), 13, class_="dim")]
    seconds, unit = _unit(max(sample.at for gpu in traced for sample in gpu.traces))
    across = Scale(0.0, max(sample.at for gpu in traced for sample in gpu.traces) / seconds)
    colors = _colors(traced)
    # What has a color is above what has none.
    order = sorted(traced, key=lambda gpu: gpu.index in colors)
    parts = []
    for number, (name, label) in enumerate(_plots(traced)):
        top = TOP + number * (EACH + GAP)
        lines = [(colors.get(gpu.index, REST), _line(gpu.traces, name, seconds)) for gpu in order]
        highest = max((value for _, line in lines for _, value in line), default=0.0)
        plot = Plot(LEFT, top, WIDTH - RIGHT, top + EACH, across, from_zero(highest))
        parts += [text(label, Point(LEFT, top - 8), 13), *plot.rows(lambda value: f"{value:g}")]
        parts += plot.columns(lambda value: f"{value:g} {unit}", WIDTH)
        parts += [plot.line(line, class_) for class_, line in lines if line]
    bottom = Point((LEFT + WIDTH - RIGHT) / 2, height(traced) - 14)
    parts.append(text("time under load", bottom, 13, class_="dim", text_anchor="middle"))
    for place, (class_, words) in enumerate(_legend(traced, colors)):
        y = TOP + 10.0 + 20 * place
        key = {"x1": WIDTH - RIGHT + 12, "x2": WIDTH - RIGHT + 32, "y1": y, "y2": y}
        parts.append(element("line", **key, class_=class_))
        parts.append(text(words, Point(WIDTH - RIGHT + 38, y + 4), 13))
    return parts


def _legend(traced: Sequence[ComputeDevice], colors: dict[int, str]) -> Iterator[tuple[str, str]]:
    yield from ((colors[gpu.index], f"GPU {gpu.index}") for gpu in traced if gpu.index in colors)
    rest = sum(gpu.index not in colors for gpu in traced)
    if rest:
        yield REST, f"{rest} other GPUs" if rest > 1 else "1 other GPU"


def _colors(traced: Sequence[ComputeDevice]) -> dict[int, str]:
    """Return the class of the line of each GPU that has a color of its own, by index."""
    chosen = sorted(sorted(traced, key=_distance(traced), reverse=True)[:COLORED], key=lambda gpu: gpu.index)
    return {gpu.index: f"line line{series}" for series, gpu in enumerate(chosen)}


def _distance(traced: Sequence[ComputeDevice]) -> Callable[[ComputeDevice], float]:
    """Return how far a GPU's means are from those of the median GPU, as a part of them."""
    names = [name for name, _ in _plots(traced)]
    means = {(gpu.index, name): fmean(_values(gpu, name) or [0.0]) for gpu in traced for name in names}
    middle = {name: median(means[gpu.index, name] for gpu in traced) for name in names}
    return lambda gpu: max(abs(means[gpu.index, name] - middle[name]) / (middle[name] or 1.0) for name in names)


def _values(gpu: ComputeDevice, name: str) -> list[float]:
    return [value for sample in gpu.traces if (value := _value(sample, name)) is not None]


def _value(sample: Sample, name: str) -> float | None:
    """Return what a plot shows of a reading. throttled: None if the driver did not report reasons."""
    if name == "throttled":
        return None if sample.reasons is None else float(not HELD.isdisjoint(sample.reasons))
    value: float | None = getattr(sample, name)
    return value


def _unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of a unit in which the run is some of them, and its sign."""
    for length, sign in ((HOUR, "h"), (MINUTE, "min")):
        if seconds >= LEAST * length:
            return length, sign
    return 1.0, "s"


def _line(samples: Sequence[Sample], name: str, seconds: float) -> list[tuple[float, float]]:
    return [(sample.at / seconds, value) for sample in samples if (value := _value(sample, name)) is not None]
