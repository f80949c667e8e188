"""One step on an engine, inside the child: warm up, sample until steady, or copy and compare."""

from gpucheck.measure.engine import CopyEngine
from gpucheck.measure.integrity import verify
from gpucheck.measure.statistics import adaptive, repeats_together, spread
from gpucheck.measure.values import Answer, Flow, Step, Timing

WARM_UP_S = 0.05  # an idle PCIe link retrains on the first traffic, and clocks rise
LATENCY_SIZE = 16
LATENCY_REPEATS = 100


def execute(engine: CopyEngine, step: Step) -> Answer:
    """Do what the step asks. Raises CopyRefused, ValueError for a step that cannot be."""
    before = engine.device_seconds()
    if step.operation == "integrity":
        checks = verify(engine, step)
        return Answer(checks=checks, device_s=engine.device_seconds() - before)
    timings = _latency(engine, step) if step.operation == "latency" else _bandwidth(engine, step)
    return Answer(timings=timings, device_s=engine.device_seconds() - before)


def _bandwidth(engine: CopyEngine, step: Step) -> tuple[Timing, ...]:
    """All flows at once, each repeated so often that its sample is long enough."""
    pilot = engine.time(step.flows, step.size, tuple(1 for _ in step.flows))
    repeats = repeats_together(pilot)
    warm = 0.0
    while warm < WARM_UP_S:
        seconds = engine.time(step.flows, step.size, repeats)
        warm += max(seconds)
        # The first copy of a run maps the peer's memory and is no measure of the ones that follow.
        repeats = repeats_together([s / r for s, r in zip(seconds, repeats, strict=True)])

    def sample() -> tuple[float, ...]:
        seconds = engine.time(step.flows, step.size, repeats)
        return tuple(s / r for s, r in zip(seconds, repeats, strict=True))

    columns = adaptive(sample, *step.samples)
    return tuple(_timing(f, step.size, r, c) for f, r, c in zip(step.flows, repeats, columns, strict=True))


def _latency(engine: CopyEngine, step: Step) -> tuple[Timing, ...]:
    """One flow after the other: small copies at the same time would measure each other."""
    timings = []
    for flow in step.flows:
        engine.latency(flow, LATENCY_REPEATS)
        columns = adaptive(lambda flow=flow: (engine.latency(flow, LATENCY_REPEATS),), *step.samples)  # type: ignore[misc]
        timings.append(_timing(flow, LATENCY_SIZE, LATENCY_REPEATS, columns[0]))
    return tuple(timings)


def _timing(flow: Flow, size: int, repeats: int, samples: tuple[float, ...]) -> Timing:
    s = spread(samples)
    return Timing(
        flow=flow,
        size=size,
        repeats=repeats,
        samples=s.samples,
        median_s=s.median,
        mad_s=s.mad,
        min_s=s.least,
        max_s=s.greatest,
    )
