"""The level burn-in: rounds of cold and hot load for minutes to days. After each, a file has the report so far."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.compute.evaluation.rates import KINDS, subject_of
from gpucheck.compute.measure import METHOD, Chosen, ComputeOptions, chosen_for, report_of
from gpucheck.compute.running.run import Collected, Doubtful, run_step
from gpucheck.compute.values import (
    COLD_S,
    CPU_S,
    MOST_ALONE,
    TYPES,
    ComputeStep,
    Failure,
    Opened,
    operations,
    untested,
    ways,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.measure.values import Watch
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.answer import Clock
from gpucheck.model.compute import BurnIn, ComputeReport, Sample
from gpucheck.model.facts import Source
from gpucheck.processes.signals import Cut

NAME = "compute-burn-in"
LEAST_S, MOST_S = 600, 48 * 3600
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A round is short enough for ten minutes to have four, and long enough to heat up; a power cut costs one at most.
ROUND_S, LONG_ROUND_S, MOST_ROUNDS_WANTED = 150.0, 600.0, 24
# Parts of a round. What they leave is for products of matrices, which heat most.
REST, MEMORY, HOT, POWER_STEPS = 0.10, 0.06, 0.36, 0.10
LONGEST_S = 60.0  # of one step: limits are looked at after each. The protection of the GPU itself acts at once.
SIMULATED_TICK_S = 3.0
READINGS = 1200  # of a GPU in a whole run
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)
BELOW_SHUTDOWN_C = 2
FATAL = tuple(name for name, kind in KINDS.items() if kind.fails)
SHUTDOWN, SLOWDOWN = "compute.burn-in-shutdown-limit", "compute.burn-in-slowdown-limit"
OWN, OF_MEMORY = "compute.burn-in-own-limit", "compute.burn-in-memory-limit"
# Codes of limits: the reading of Sample, what it is, and the source of the limit.
LIMITS = {
    OWN: ("temperature_c", "temperature of a GPU", "--max-temperature"),
    SHUTDOWN: ("temperature_c", "temperature of a GPU", f"NVML's shutdown temperature less {BELOW_SHUTDOWN_C}"),
    OF_MEMORY: ("memory_temperature_c", "temperature of the memory", "NVML's limit of that memory"),
    SLOWDOWN: ("margin_c", "margin of a GPU to its slowdown", "NVML's T.Limit of that GPU"),
}
Limits = dict[int, dict[str, float]]  # degrees by GPU index and code


class Reached(NamedTuple):
    """A limit that the device at this place reached. values: of the code."""

    place: int
    code: str
    values: dict[str, Any]


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: the file of its rounds. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


def duration(text: str) -> int:
    """Return the seconds of ``10m``, ``36h`` or ``1h30m``. Raises ValueError, with what is accepted."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is not a duration. Write 10m, 12h or 1h30m")
    seconds = sum(int(count) * UNITS[unit] for count, unit in parts)
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(f"{text} is outside 10m to 48h")
    return seconds


def rounds_of(seconds: float) -> int:
    """Return the number of rounds, of equal length, of a run."""
    return max(2, round(seconds / min(LONG_ROUND_S, max(ROUND_S, seconds / MOST_ROUNDS_WANTED))))


def round_steps(
    seconds: float, types: Sequence[str], without: Sequence[str] = (), *, small: bool = False
) -> Iterator[ComputeStep]:
    """Yield the steps of one round on devices with these types; together they take this time.

    without: as Opened.without. small: times for CPUs.
    """
    every, able, moved = operations(types, without), [type_ for type_ in TYPES if type_ in types], ways(without)
    cold = CPU_S if small else COLD_S
    left = seconds * (1 - REST - MEMORY - HOT - POWER_STEPS) - cold * len(every)
    for step in (
        ComputeStep(kind="rest", what="to cool down", seconds=REST * seconds),
        *(ComputeStep(kind="results", what=what, seconds=cold, phase="cold") for what in every),
        *(ComputeStep(kind="memory", what=way, seconds=MEMORY * seconds / len(moved)) for way in moved),
        *(ComputeStep(kind="matrix", what=type_, seconds=left / len(able)) for type_ in able),
        *(ComputeStep(kind="results", what=what, seconds=HOT * seconds / len(every)) for what in every),
        ComputeStep(kind="results", what=every[-1], seconds=POWER_STEPS * seconds, phase="steps"),
    ):
        count = max(1, math.ceil(step.seconds / LONGEST_S))
        yield from [replace(step, seconds=step.seconds / count)] * count


def span(seconds: float) -> str:
    """Return ``47 h 50 min``, ``12 min`` or ``40 s``."""
    minutes = int(seconds // 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, round(seconds))} s"


def limits(gpus: Sequence[Gpu], opened: Sequence[Opened | Failure], limit_c: float | None) -> Limits:
    """Return the limits. opened: the same GPUs, or CPU processes. limit_c: the temperature that the user gave.

    GPUs that report no temperature to stop at report the margin to their slowdown: Ada and newer. Raises Unmeasurable
    if no limit of a GPU is known: hours of load would have no end.
    """
    found: Limits = {}
    for gpu, one in zip(gpus, opened, strict=bool(gpus)):
        own = found[gpu.index] = {}
        if limit_c is not None:
            own[OWN] = limit_c
        elif gpu.health.temperature_shutdown_c:
            own[SHUTDOWN] = gpu.health.temperature_shutdown_c - BELOW_SHUTDOWN_C
        elif gpu.health.temperature_margin_c is not None:
            own[SLOWDOWN] = 0.0
        if own and isinstance(one, Opened) and one.memory_limit_c is not None:
            own[OF_MEMORY] = one.memory_limit_c
    if unknown := tuple(index for index, own in found.items() if not own):
        seen = "limit of temperature unknown"
        raise Unmeasurable(Subject(check=NAME).unknown("compute.no-temperature-limit", seen, gpus=unknown))
    return found


def words(limits: Limits) -> tuple[str, ...]:
    """Return the limits of a run as text, each with its source."""
    degrees = {code: sorted({own[code] for own in limits.values() if code in own}) for code in LIMITS}
    found = (
        f"{what}: {', '.join(f'{limit:g} C' for limit in degrees[code])} (source: {source})"
        for code, (_, what, source) in LIMITS.items()
        if degrees[code]
    )
    return (*found, f"errors: any of {', '.join(FATAL)} (source: NVML's counters, while gpucheck computes)")


def reached(
    place: int, limits: Mapping[str, float], samples: Sequence[Sample], errors: Mapping[str, int]
) -> Reached | None:
    """Return which limit these readings and counters reached."""
    if rose := tuple(f"{errors[name]} {name}" for name in FATAL if errors.get(name)):
        return Reached(place, "compute.burn-in-errors", {"errors": rose})
    for code, limit in limits.items():
        found = [degrees for sample in samples if (degrees := getattr(sample, LIMITS[code][0])) is not None]
        if code == SLOWDOWN and min(found, default=1) <= limit:
            return Reached(place, code, {"margin_c": min(found)})
        if code != SLOWDOWN and max(found, default=-1) >= limit:
            return Reached(place, code, {"reached_c": max(found), "limit_c": limit, "below_c": BELOW_SHUTDOWN_C})
    return None


def burn_in(
    source: Source,
    options: BurnInOptions,
    doubtful: Doubtful,
    evaluate: Callable[[ComputeReport], ComputeReport],
    watch: Watch,
    store: Callable[[ComputeReport], None],
) -> ComputeReport:
    """Run it. Raises Unmeasurable, OSError if the file is not writable.

    doubtful, evaluate: as those of measure. store: writes the report of the rounds so far to the file, before the
    first and after each.
    """
    chosen = chosen_for(source, replace(options.options, tick_s=SIMULATED_TICK_S))
    with closing(chosen.bench):
        opened = chosen.bench.open()
        limited = limits(chosen.gpus, opened, options.max_temperature_c)
        run = Run(chosen, opened, options.seconds, limited, doubtful)
        not_written, shown = "", set()

        def report() -> ComputeReport:
            return evaluate(_report(source, options, not_written, run))

        if run.able():
            store(report())  # what cannot be kept is known before hours of load
        cut = Cut()
        with cut:
            for _ in run.rounds(watch):
                made = report()
                for one in made.findings:
                    key = (one.check, one.subject, one.cause, one.verdict)
                    if one.verdict in (Verdict.WARN, Verdict.FAIL) and key not in shown:
                        shown.add(key)
                        watch.note(
                            f"after {span(run.seconds)}: {one.verdict.value} {one.check} {one.subject}: {one.why}"
                        )
                try:
                    store(made)
                    not_written = ""
                except OSError as error:  # a disk that is full does not end the run: what it proves is still reported
                    if not not_written:
                        watch.note(f"{options.state}: not written: {error.strerror}. The run goes on.")
                    not_written = error.strerror or str(error)
        return cut.report(report, watch.keep)  # and the bench is closed, which takes a while


class Run:
    """What a burn-in did so far. opened: the devices, of an open bench. planned: seconds."""

    def __init__(
        self, chosen: Chosen, opened: Sequence[Opened | Failure], planned: float, limits: Limits, doubtful: Doubtful
    ) -> None:
        self.chosen, self.planned, self.limits, self.doubtful = chosen, planned, limits, doubtful
        self.planned_rounds = rounds_of(planned)
        self.round_s = planned / self.planned_rounds
        self.clock = Clock()
        self.collected = [Collected(*one, READINGS) for one in zip(chosen.devices, opened, strict=True)]
        self.done, self.seconds = 0, 0.0
        self.stopped_by: Reached | None = None

    def able(self) -> list[int]:
        """Return the places of the devices that opened and have not failed."""
        return [place for place, one in enumerate(self.collected) if one.opened and one.made.failed is None]

    @property
    def ended(self) -> Literal["complete", "interrupted", "limit", "no-device"]:
        """Return why it ended; interrupted, as long as there is more to do."""
        if self.stopped_by is not None:
            return "limit"
        if not self.able():
            return "no-device"
        whole = self.done >= self.planned_rounds or self.seconds > self.planned - self.round_s / 2
        return "complete" if whole else "interrupted"

    def rounds(self, watch: Watch) -> Iterator[None]:
        """Run round after round, and yield after each."""
        opened = [one.opened for one in self.collected if one.opened]
        types = tuple({type_ for one in opened for type_ in one.types})
        while self.ended == "interrupted":
            steps = tuple(round_steps(self.round_s, types, opened[0].without, small=not self.chosen.gpus))
            for number, step in enumerate(steps):
                text = f"round {self.done + 1} of {self.planned_rounds}, {step.label}"
                left = f"{span(self.planned - self.seconds)} left"
                watch.step(f"{text}, {left}", self.done * len(steps) + number, self.planned_rounds * len(steps))
                able = self.able()
                self.seconds += run_step(self.chosen.bench, step, self.collected, able, self.seconds)
                ran = ((place, self.collected[place]) for place in able)
                stops = (reached(at, self.limits.get(one.made.index, {}), one.last, one.errors) for at, one in ran)
                self.stopped_by = next(filter(None, stops), None)
                if self.stopped_by is not None:
                    break
            else:
                self.done += 1
                self._alone()
            yield

    def _alone(self) -> None:
        """Measure alone what looks slow over the rounds so far, each rate once in a run."""
        low = self.doubtful([one.result() for one in self.collected])
        new = [(place, step) for place, step in low if (step.kind, step.what) not in self.collected[place].alone]
        for place, step in new[:MOST_ALONE]:
            self.seconds += run_step(self.chosen.bench, step, self.collected, (place,), self.seconds, alone=True)

    def ending(self) -> Finding:
        """Return the finding about the run as a whole: what was planned and what is proven."""
        evidence = (f"{self.done} of {self.planned_rounds} rounds", *(words(self.limits) if self.chosen.gpus else ()))
        subject, done = Subject(check=NAME, evidence=evidence), span(self.seconds)
        seen, wanted = f"ended after {done} of {span(self.planned)}", f"{span(self.planned)} of load"
        if self.stopped_by is not None:
            place, code, values = self.stopped_by
            subject = subject_of(NAME, self.collected[place].made, *evidence)
            return (subject.fails if code == SHUTDOWN else subject.warns)(code, seen, wanted, **values)
        if self.ended == "complete":
            return subject.passes(f"{done} of cold and hot load, {self.done} rounds")
        interrupted = self.ended == "interrupted"
        code = "compute.burn-in-interrupted" if interrupted else "compute.burn-in-no-gpu"
        return subject.unknown(code, seen, wanted)


def _report(source: Source, options: BurnInOptions, not_written: str, run: Run) -> ComputeReport:
    ending = run.ending()
    made = BurnIn(
        planned_seconds=run.planned,
        seconds=round(run.seconds, 1),
        planned_rounds=run.planned_rounds,
        rounds=run.done,
        ended=run.ended,
        reason=ending.why if run.stopped_by else "",
        limits=ending.evidence[1:],
        hottest={str(one.made.index): one.hottest for one in run.collected if one.hottest is not None},
        state=str(options.state),
    )
    lost = (f"{options.state}: not written: {not_written}",) if not_written else ()
    report = report_of(source, run.chosen, run.collected, run.clock, (ending,))
    return replace(
        report,
        level="burn-in",
        load_seconds=made.seconds,
        burn_in=made,
        method=(*METHOD, *ROUNDS),
        notes=(*run.chosen.notes, *untested(report.not_tested), *lost),
    )
