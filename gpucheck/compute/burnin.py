"""The level burn-in: rounds of cold and hot load for minutes to days, kept in a file from which a cut run goes on."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
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
    not_tested,
    operations,
    ways,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.measure.values import Watch
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.answer import Clock
from gpucheck.model.compute import BurnIn, ComputeDevice, ComputeReport, Noticed, Sample
from gpucheck.model.facts import Source
from gpucheck.processes.signals import Cut

LEAST_S, MOST_S = 600, 48 * 3600
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A round is short enough for ten minutes to have four, and long enough to heat up; a power cut costs one at most.
ROUND_S, LONG_ROUND_S, MOST_ROUNDS_WANTED = 150.0, 600.0, 24
# Parts of a round. What they leave is for products of matrices, which heat most.
REST, MEMORY, HOT, POWER_STEPS = 0.10, 0.06, 0.36, 0.10
LONGEST_S = 60.0  # of one step: limits are looked at after each


class BurnInPlan(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the whole run. rounds: of equal length."""

    seconds: float
    rounds: int
    small: bool = False

    @property
    def round_s(self) -> float:
        return self.seconds / self.rounds


def duration(text: str) -> int:
    """Return the seconds of ``10m``, ``36h`` or ``1h30m``. Raises ValueError, with what is accepted."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is not a duration. Write 10m, 12h or 1h30m")
    seconds = sum(int(count) * UNITS[unit] for count, unit in parts)
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(f"{text} is outside 10m to 48h")
    return seconds


def plan(seconds: float, *, small: bool = False) -> BurnInPlan:
    """Return the plan for this time. small: times for CPUs."""
    long = min(LONG_ROUND_S, max(ROUND_S, seconds / MOST_ROUNDS_WANTED))
    return BurnInPlan(seconds=seconds, rounds=max(2, round(seconds / long)), small=small)


def round_steps(plan: BurnInPlan, types: Sequence[str], without: Sequence[str] = ()) -> Iterator[ComputeStep]:
    """Yield the steps of one round on devices with these types; together they take the time of a round.

    without: as Opened.without.
    """
    every, able, moved = operations(types, without), [type_ for type_ in TYPES if type_ in types], ways(without)
    cold = CPU_S if plan.small else COLD_S
    share = plan.round_s
    yield from _parts(ComputeStep(kind="rest", what="to cool down", seconds=REST * share))
    for operation in every:
        yield ComputeStep(kind="results", what=operation, seconds=cold, phase="cold")
    for way in moved:
        yield from _parts(ComputeStep(kind="memory", what=way, seconds=MEMORY * share / len(moved)))
    left = share * (1 - REST - MEMORY - HOT - POWER_STEPS) - cold * len(every)
    for type_ in able:
        yield from _parts(ComputeStep(kind="matrix", what=type_, seconds=left / len(able)))
    for operation in every:
        yield from _parts(ComputeStep(kind="results", what=operation, seconds=HOT * share / len(every)))
    yield from _parts(ComputeStep(kind="results", what=every[-1], seconds=POWER_STEPS * share, phase="steps"))


def _parts(step: ComputeStep) -> Iterator[ComputeStep]:
    count = max(1, math.ceil(step.seconds / LONGEST_S))
    for _ in range(count):
        yield msgspec.structs.replace(step, seconds=step.seconds / count)


def span(seconds: float) -> str:
    """Return ``47 h 50 min``, ``12 min`` or ``40 s``."""
    minutes = int(seconds // 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, round(seconds))} s"


# A limit is looked at after each step, of at most a minute. The protection of the GPU itself acts at once.
NAME = "compute-burn-in"
BELOW_SHUTDOWN_C = 2
FATAL = tuple(name for name, kind in KINDS.items() if kind.fails)


class Reached(NamedTuple):
    """A limit that a GPU reached. text: for the report of the run. values: of the code."""

    text: str
    code: str
    values: dict[str, Any]


class BurnInLimits(NamedTuple):
    """temperature_c: by index, None where nothing is known. configured: it was given as --max-temperature.

    memory_c: by index, at which a GPU slows down for its memory; only where NVML reports it.
    by_margin: GPUs that report the margin to their slowdown instead of a temperature to stop at: Ada and newer.
    """

    temperature_c: dict[int, float | None]
    configured: bool
    memory_c: dict[int, float]
    by_margin: frozenset[int] = frozenset()

    def unknown(self) -> tuple[int, ...]:
        """Return the GPUs of which no limit of temperature is known."""
        return tuple(i for i, limit in self.temperature_c.items() if limit is None and i not in self.by_margin)

    def words(self) -> tuple[str, ...]:
        known = {limit for limit in self.temperature_c.values() if limit is not None}
        source = "--max-temperature" if self.configured else f"NVML's shutdown temperature less {BELOW_SHUTDOWN_C}"
        degrees = ", ".join(f"{limit:g} C" for limit in sorted(known))
        memory = ", ".join(f"{limit:g} C" for limit in sorted(set(self.memory_c.values())))
        return (
            *((f"temperature of a GPU: {degrees} (source: {source})",) if known else ()),
            *((f"temperature of the memory: {memory} (source: NVML's limit of that memory)",) if memory else ()),
            *(("margin of a GPU to its slowdown: 0 C (source: NVML's T.Limit of that GPU)",) if self.by_margin else ()),
            f"errors: any of {', '.join(FATAL)} (source: NVML's counters, while gpucheck computes)",
        )

    def reached(self, index: int, samples: Sequence[Sample], errors: Mapping[str, int]) -> Reached | None:
        rose = tuple(f"{errors[name]} {name}" for name in FATAL if errors.get(name))
        if rose:
            text = f"errors: GPU {index} counted {', '.join(rose)}"
            return Reached(text, "compute.burn-in-errors", {"errors": rose})
        left = min((s.margin_c for s in samples if s.margin_c is not None), default=None)
        if index in self.by_margin and left is not None and left <= 0:
            text = f"temperature: GPU {index} reached its slowdown T.Limit (margin {left:g} C)"
            return Reached(text, "compute.burn-in-slowdown-limit", {"margin_c": left})
        own = ("--max-temperature", "compute.burn-in-own-limit")
        usual = (f"{BELOW_SHUTDOWN_C} below its shutdown temperature", "compute.burn-in-shutdown-limit")
        of_memory = ("at which it slows down", "compute.burn-in-memory-limit")
        for what, limit, found, (source, code) in (
            ("", self.temperature_c.get(index), [s.temperature_c for s in samples], own if self.configured else usual),
            (", memory,", self.memory_c.get(index), [s.memory_temperature_c for s in samples], of_memory),
        ):
            hottest = max((degrees for degrees in found if degrees is not None), default=None)
            if limit is not None and hottest is not None and hottest >= limit:
                text = f"temperature: GPU {index}{what} reached {hottest:g} C, limit {limit:g} C ({source})"
                values = {"reached_c": hottest, "limit_c": limit, "below_c": BELOW_SHUTDOWN_C}
                return Reached(text, code, values)
        return None


def limits(gpus: Sequence[Gpu], opened: Sequence[Opened | Failure], limit_c: float | None) -> BurnInLimits:
    """Return the limits. opened: the same GPUs. limit_c: the temperature that the user gave.

    Raises Unmeasurable if no limit of a GPU is known: hours of load would have no end.
    """
    own = {gpu.index: gpu.health.temperature_shutdown_c for gpu in gpus}
    by_gpu = {i: limit_c if limit_c is not None else (c - BELOW_SHUTDOWN_C if c else None) for i, c in own.items()}
    memory = {
        gpu.index: one.memory_limit_c
        for gpu, one in zip(gpus, opened, strict=False)  # CPU processes are no GPUs
        if isinstance(one, Opened) and one.memory_limit_c is not None
    }
    margins = (g.index for g in gpus if by_gpu[g.index] is None and g.health.temperature_margin_c is not None)
    found = BurnInLimits(by_gpu, limit_c is not None, memory, frozenset(margins))
    if unknown := found.unknown():
        seen = "limit of temperature unknown"
        raise Unmeasurable(Subject(check=NAME).unknown("compute.no-temperature-limit", seen, gpus=unknown))
    return found


def ending(burn_in: BurnIn, stopped_by: tuple[ComputeDevice, Reached] | None) -> Finding:
    """Return the finding about the run as a whole: what was planned and what is proven."""
    done, planned = span(burn_in.seconds), span(burn_in.planned_seconds)
    evidence = (f"{burn_in.rounds} of {burn_in.planned_rounds} rounds", *burn_in.limits)
    subject = Subject(check=NAME, evidence=evidence)
    if burn_in.ended == "complete":
        return subject.passes(f"{done} of cold and hot load, {burn_in.rounds} rounds")
    seen, wanted = f"ended after {done} of {planned}", f"{planned} of load"
    if burn_in.ended == "interrupted":
        return subject.unknown("compute.burn-in-interrupted", seen, wanted)
    if burn_in.ended == "no-device" or stopped_by is None:
        return subject.unknown("compute.burn-in-no-gpu", seen, wanted)
    device, limit = stopped_by
    subject = subject_of(NAME, device, *evidence)
    fails = limit.code == "compute.burn-in-shutdown-limit"
    return (subject.fails if fails else subject.warns)(limit.code, seen, wanted, **limit.values)


SIMULATED_TICK_S = 3.0
READINGS, MOST_NOTICED = 1200, 100  # readings of a GPU in a whole run
BAD = (Verdict.WARN, Verdict.FAIL)
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: the file of its rounds. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


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
        planned = plan(options.seconds, small=not chosen.gpus)
        run = Run(chosen, opened, planned, limits(chosen.gpus, opened, options.max_temperature_c), doubtful)

        def report() -> ComputeReport:
            return evaluate(_report(source, options, run))

        if run.able():
            store(report())  # what cannot be kept is known before hours of load
        cut = Cut()
        with cut:
            for _ in run.rounds(watch):
                made = report()
                run.notice(made.findings, watch)
                try:
                    store(made)
                    run.not_written = None
                except OSError as error:  # a disk that is full does not end the run: what it proves is still reported
                    if run.not_written is None:
                        watch.note(f"{options.state}: not written: {error.strerror}. The run goes on.")
                    run.not_written = error.strerror or str(error)
        return cut.report(report, watch.keep)  # and the bench is closed, which takes a while


class Run:
    """What a burn-in did so far. opened: the devices, of an open bench."""

    def __init__(
        self,
        chosen: Chosen,
        opened: Sequence[Opened | Failure],
        plan: BurnInPlan,
        limits: BurnInLimits,
        doubtful: Doubtful,
    ) -> None:
        self.chosen, self.plan, self.limits, self.doubtful = chosen, plan, limits, doubtful
        self.clock = Clock()
        self.collected = [Collected(*one, READINGS) for one in zip(chosen.devices, opened, strict=True)]
        self.done, self.seconds = 0, 0.0
        self.noticed: list[Noticed] = []
        self.stopped_by: tuple[int, Reached] | None = None
        self.not_written: str | None = None

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
        whole = self.done >= self.plan.rounds or self.seconds > self.plan.seconds - self.plan.round_s / 2
        return "complete" if whole else "interrupted"

    def rounds(self, watch: Watch) -> Iterator[None]:
        """Run round after round, and yield after each."""
        opened = [one.opened for one in self.collected if one.opened]
        types = {type_ for one in opened for type_ in one.types}
        without = opened[0].without if opened else ()
        while self.ended == "interrupted":
            self._round(tuple(round_steps(self.plan, tuple(types), without)), watch)
            if self.stopped_by is None:
                self.done += 1
                self._alone()
            yield

    def _round(self, steps: Sequence[ComputeStep], watch: Watch) -> None:
        bench = self.chosen.bench
        for number, step in enumerate(steps):
            text = f"round {self.done + 1} of {self.plan.rounds}, {step.label}"
            left = f"{span(self.plan.seconds - self.seconds)} left"
            watch.step(f"{text}, {left}", self.done * len(steps) + number, self.plan.rounds * len(steps))
            able = self.able()
            self.seconds += run_step(bench, step, self.collected, able, self.seconds)
            for place in able:
                one = self.collected[place]
                limit = self.limits.reached(one.made.index, one.last, one.errors)
                if limit is not None:
                    self.stopped_by = (place, limit)
                    return

    def _alone(self) -> None:
        """Measure alone what looks slow over the rounds so far, each rate once in a run."""
        low = self.doubtful([one.result() for one in self.collected])
        new = [(place, step) for place, step in low if (step.kind, step.what) not in self.collected[place].alone]
        for place, step in new[:MOST_ALONE]:
            self.seconds += run_step(self.chosen.bench, step, self.collected, (place,), self.seconds, alone=True)

    def notice(self, findings: Sequence[Finding], watch: Watch) -> None:
        """Keep and show each finding when it comes up."""
        known = {(one.check, one.subject, one.cause, one.verdict) for one in self.noticed}
        for finding in findings:
            key = (finding.check, finding.subject, finding.cause, finding.verdict)
            if finding.verdict not in BAD or len(self.noticed) >= MOST_NOTICED or key in known:
                continue
            known.add(key)
            self.noticed.append(
                Noticed(
                    at=round(self.seconds, 1),
                    time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    check=finding.check,
                    subject=finding.subject,
                    verdict=finding.verdict,
                    cause=finding.cause,
                    seen=str(finding.seen)[:200],
                )
            )
            after = f"after {span(self.seconds)}: {finding.verdict.value} {finding.check} {finding.subject}"
            watch.note(f"{after}: {finding.why}")


def _report(source: Source, options: BurnInOptions, run: Run) -> ComputeReport:
    chosen, planned = run.chosen, run.plan
    place, limit = run.stopped_by or (0, None)
    made = BurnIn(
        planned_seconds=planned.seconds,
        seconds=round(run.seconds, 1),
        planned_rounds=planned.rounds,
        rounds=run.done,
        ended=run.ended,
        reason=limit.text if limit else "",
        limits=run.limits.words() if chosen.gpus else (),
        noticed=tuple(run.noticed),
        hottest={str(one.made.index): one.hottest for one in run.collected if one.hottest is not None},
        state=str(options.state),
    )
    stopped_by = (run.collected[place].made, limit) if limit is not None else None
    lost, opened = run.not_written, next((one.opened for one in run.collected if one.opened), None)
    return replace(
        report_of(source, chosen, run.collected, run.clock, (ending(made, stopped_by),)),
        level="burn-in",
        load_seconds=made.seconds,
        burn_in=made,
        method=(*METHOD, *ROUNDS),
        notes=(*chosen.notes, *not_tested(opened), *((f"{options.state}: not written: {lost}",) if lost else ())),
    )
