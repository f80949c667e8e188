"""A burn-in from its options to its report: round after round until the time is over or a limit is reached."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.compute.burnin.plan import BurnInLimits, BurnInPlan, Reached, ending, limits, plan, round_steps, span
from gpucheck.compute.measure import METHOD, Chosen, ComputeOptions, chosen_for, report_of, with_settings
from gpucheck.compute.running.run import Collected, Doubtful, run_step
from gpucheck.compute.values import MOST_ALONE, Failure, Opened
from gpucheck.model import Finding, Verdict
from gpucheck.model.compute import BurnIn, ComputeReport, Noticed
from gpucheck.model.facts import Source
from gpucheck.processes.signals import TerminatedError

SIMULATED_TICK_S = 3.0
READINGS, MOST_NOTICED = 1200, 100  # readings of a GPU in a whole run
BAD = (Verdict.WARN, Verdict.FAIL)
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)


class Shown(NamedTuple):
    """Where a run reports: step (text, number, count), a finding that came up, a note."""

    step: Callable[[str, int, int], None]
    note: Callable[[str], None]


class Evaluation(NamedTuple):
    """What evaluates results. doubtful: what is measured again alone. evaluated: a report with findings on numbers."""

    doubtful: Doubtful
    evaluated: Callable[[ComputeReport], ComputeReport]


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: the file of its rounds. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


def burn_in(
    source: Source,
    options: BurnInOptions,
    evaluation: Evaluation,
    shown: Shown,
    keep: Callable[[ComputeReport], None],
    store: Callable[[ComputeReport], None],
) -> ComputeReport:
    """Run it. Raises Unmeasurable, OSError if the file is not writable.

    keep: gets the report as soon as it is made: of what is proven so far when a signal ends the run, too.
    store: writes the report of the rounds so far to the file, before the first and after each.
    """
    chosen = chosen_for(source, replace(options.options, tick_s=SIMULATED_TICK_S))
    with closing(chosen.bench):
        opened = chosen.bench.open()
        planned = plan(options.seconds, small=not chosen.gpus)
        limited = limits(chosen.gpus, opened, options.max_temperature_c)
        run = Run(chosen, opened, planned, limited, evaluation.doubtful)

        def report() -> ComputeReport:
            return evaluation.evaluated(_report(source, options, run))

        if run.able():
            store(report())  # what cannot be kept is known before hours of load
        try:
            for _ in run.rounds(shown):
                made = report()
                run.notice(made.findings, shown)
                try:
                    store(made)
                    run.not_written = None
                except OSError as error:  # a disk that is full does not end the run: what it proves is still reported
                    if run.not_written is None:
                        shown.note(f"{options.state}: not written: {error.strerror}. The run goes on.")
                    run.not_written = error.strerror or str(error)
            keep(made := report())
        except (KeyboardInterrupt, TerminatedError):
            keep(report())
            raise
        return made  # and the bench is closed, which takes a while


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
        self.started, self.clock = datetime.now(timezone.utc), time.monotonic()
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

    def rounds(self, shown: Shown) -> Iterator[None]:
        """Run round after round, and yield after each."""
        types = {type_ for one in self.collected if one.opened for type_ in one.opened.types}
        while self.ended == "interrupted":
            self._round(tuple(types), shown)
            if self.stopped_by is None:
                self.done += 1
                self._alone()
            yield

    def _round(self, types: Sequence[str], shown: Shown) -> None:
        bench, steps = self.chosen.bench, tuple(round_steps(self.plan, types))
        for number, step in enumerate(steps):
            text = f"round {self.done + 1} of {self.plan.rounds}, {step.label}"
            left = f"{span(self.plan.seconds - self.seconds)} left"
            shown.step(f"{text}, {left}", self.done * len(steps) + number, self.plan.rounds * len(steps))
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

    def notice(self, findings: Sequence[Finding], shown: Shown) -> None:
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
            shown.note(f"{after}: {finding.why}")


def _report(source: Source, options: BurnInOptions, run: Run) -> ComputeReport:
    chosen, planned = run.chosen, run.plan
    devices = with_settings(tuple(one.result() for one in run.collected), chosen.gpus)
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
    stopped_by = (devices[place], limit) if limit is not None else None
    lost = run.not_written
    return replace(
        report_of(source, chosen, devices, (ending(made, stopped_by),)),
        level="burn-in",
        versions=next((one.opened.versions for one in run.collected if one.opened), {}),
        started=run.started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - run.clock, 3),
        load_seconds=made.seconds,
        burn_in=made,
        method=(*METHOD, *ROUNDS),
        notes=(*chosen.notes, *((f"{options.state}: not written: {lost}",) if lost else ())),
    )
