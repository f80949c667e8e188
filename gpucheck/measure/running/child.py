"""The process that uses the devices: ``python -m gpucheck.measure.running.child FD``.

It reads JSON lines on stdin (Setup, then Steps) and writes a JSON line for each to the descriptor (Opened, Answer or
Failure). Other output is kept for the report if it exits early, and is not read as a result.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO, TypeVar

from gpucheck.measure.running.integrity import verify
from gpucheck.measure.values import (
    LATENCY_BYTES,
    LATENCY_REPEATS,
    MAX_REPEATS,
    MISTAKES,
    WARM_UP_S,
    Answer,
    CopyEngine,
    CopyStep,
    Failure,
    FailureKind,
    Flow,
    NotOpened,
    NotShared,
    NotTimed,
    Opened,
    Setup,
    Timing,
    TimingWay,
    adaptive,
    error_text,
    kind_of,
    repeats_together,
    spread,
)
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.lifeline import first_line, located, reply, serve, setup_of

Shape = TypeVar("Shape")


def execute(engine: CopyEngine, step: CopyStep) -> Answer:
    """Run a step. Raises NotTimed, ValueError for an invalid step."""
    before = engine.device_seconds()
    if step.operation == "integrity":
        checks = verify(engine, step)
        return Answer(checks=checks, device_s=engine.device_seconds() - before)
    timings = _latency(engine, step) if step.operation == "latency" else _bandwidth(engine, step)
    return Answer(timings=timings, device_s=engine.device_seconds() - before)


def _bandwidth(engine: CopyEngine, step: CopyStep) -> tuple[Timing, ...]:
    """Time all flows simultaneously, each repeated until its sample is long enough."""
    row = _Row(engine, step.flows, step.size)
    row.repeats = repeats_together(row.sample())
    warm = 0.0
    while warm < WARM_UP_S:
        each = row.sample()
        warm += max(s * r for s, r in zip(each, row.repeats, strict=True))
        # The first copy of a run maps the peer's memory, so its time does not apply to later ones.
        row.repeats = tuple(min(row.most, r) for r in repeats_together(each))
    columns = adaptive(row.sample, *step.samples)
    rows = zip(step.flows, row.repeats, columns, strict=True)
    return tuple(_timing(f, step.size, r, c, engine.way) for f, r, c in rows)


def _latency(engine: CopyEngine, step: CopyStep) -> tuple[Timing, ...]:
    timings = []
    for flow in step.flows:
        row = _Row(engine, (flow,), LATENCY_BYTES, LATENCY_REPEATS)
        row.latency()
        columns = adaptive(row.latency, *step.samples)
        timings.append(_timing(flow, LATENCY_BYTES, row.repeats[0], columns[0], engine.way))
    return tuple(timings)


class _Row:
    """Consecutive copies: how many of each flow, and the maximum that the host can queue in time."""

    def __init__(self, engine: CopyEngine, flows: Sequence[Flow], size: int, repeats: int = 1) -> None:
        self.engine, self.flows, self.size = engine, flows, size
        self.repeats = (repeats,) * len(flows)
        self.most = MAX_REPEATS

    def sample(self) -> tuple[float, ...]:
        """Return seconds of one copy of each flow. Raises NotTimed if not even one copy each is queued in time."""
        seconds = self._queued(lambda repeats: self.engine.time(self.flows, self.size, repeats))
        return tuple(s / r for s, r in zip(seconds, self.repeats, strict=True))

    def latency(self) -> tuple[float]:
        """Return seconds of one small copy of the only flow. Raises NotTimed as ``sample`` does."""
        return (self._queued(lambda repeats: self.engine.latency(self.flows[0], repeats[0])),)

    def _queued(self, measure: Callable[[tuple[int, ...]], Shape]) -> Shape:
        """Halve the number of copies after each NotTimed: a full queue or a slow host accepts fewer."""
        try:
            return measure(self.repeats)
        except NotTimed:
            if max(self.repeats) == 1:
                raise
            self.repeats = tuple(max(1, r // 2) for r in self.repeats)
            self.most = max(self.repeats)
        return self._queued(measure)


def _timing(flow: Flow, size: int, repeats: int, samples: tuple[float, ...], way: TimingWay) -> Timing:
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
        way=way,
    )


def engine_of(name: str) -> CopyEngine:
    """Return the copy engine of this name; its packages are imported when it opens."""
    if name == "cpu":
        from gpucheck.measure.engines.cpu import CpuEngine

        return CpuEngine()
    from gpucheck.measure.engines.driver.engine import DriverEngine

    return DriverEngine()


def open_engine(engine: CopyEngine, setup: Setup) -> Opened | Failure:
    try:
        return engine.open(setup)
    except ModuleNotFoundError as error:
        return Failure(kind="missing-package", purpose="open", detail=str(error.name))
    except NotOpened as error:
        reason, values = error.finding.code, error.finding.values
        return Failure(kind="not-started", purpose="open", detail=str(error), reason=reason, values=values)
    except MISTAKES as error:
        return Failure(kind="defect", purpose="open", detail=located(error))
    except Exception as error:
        kind: FailureKind = "no-resources" if exhausted(error) else "not-started"
        return Failure(kind=kind, purpose="open", detail=first_line(error))


def answer(engine: CopyEngine, step: CopyStep) -> Answer | Failure:
    """Run one step, or return why that failed. Only an error that CUDA returned concerns the copy."""
    try:
        return execute(engine, step)
    except NotTimed as error:
        return Failure(kind="not-timed", purpose=step.purpose, flows=step.flows, detail=str(error))
    except NotShared as error:
        return Failure(kind="not-shared", purpose=step.purpose, flows=step.flows, detail=str(error), code=error.code)
    except Exception as error:
        code = engine.error_code(error)
        if code is not None:
            message, known = str(error), error_text(code)
            detail = message.splitlines()[0] if message.startswith(known) else f"{known}: {first_line(error)}"
            return Failure(kind=kind_of(code), purpose=step.purpose, flows=step.flows, detail=detail, code=code)
        if isinstance(error, MemoryError):  # CuPy's OutOfMemoryError is one too
            return Failure(kind="no-memory", purpose=step.purpose, flows=step.flows, detail=first_line(error))
        kind: FailureKind = "no-resources" if exhausted(error) else "defect"
        return Failure(kind=kind, purpose=step.purpose, flows=step.flows, detail=located(error))


def main(descriptor: int, requests: BinaryIO) -> None:
    """Run requests until stdin closes."""
    setup = setup_of(requests, Setup)
    engine = engine_of(setup.engine)
    opened = open_engine(engine, setup)
    reply(descriptor, opened)
    if isinstance(opened, Opened):
        try:
            serve(descriptor, requests, CopyStep, partial(answer, engine))
        finally:
            engine.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer)
