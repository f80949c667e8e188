"""A burn-in from its options to its report: a new one, or the rest of one that was cut."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck import __version__
from gpucheck.compute.burnin.plan import (
    MOST_NOTICED,
    BurnInLimits,
    BurnInPlan,
    Identity,
    OfGpu,
    Reached,
    Round,
    State,
    ending,
    fits,
    limits,
    of_gpu,
    plan,
    read,
    round_steps,
    span,
    together,
    write,
)
from gpucheck.compute.evaluation import doubtful
from gpucheck.compute.measure import METHOD, Chosen, ComputeOptions, chosen_for, findings_of, report_of, with_settings
from gpucheck.compute.running.run import Collected, rate_of, run_step
from gpucheck.compute.values import MOST_ALONE, Bench, ComputeStep, Failure, Opened
from gpucheck.model import Finding, NvmlReading, Verdict, worst
from gpucheck.model.compute import BurnIn, ComputeDevice, ComputeReport, Noticed
from gpucheck.model.device import Device
from gpucheck.model.facts import Source
from gpucheck.processes.signals import TerminatedError

BAD = (Verdict.WARN, Verdict.FAIL)
Evaluate = Callable[[tuple[ComputeDevice, ...]], Sequence[Finding]]


class Shown(NamedTuple):
    """Where a run reports: step (text, number, count), a finding that came up, a note."""

    step: Callable[[str, int, int], None]
    note: Callable[[str], None]


class Session:
    """One start of gpucheck within a burn-in. Works on state in place. opened: the devices, of an open bench."""

    def __init__(
        self,
        bench: Bench,
        devices: Sequence[Device],
        opened: Sequence[Opened | Failure],
        state: State,
        path: Path,
        limits: BurnInLimits,
    ) -> None:
        self.bench, self.devices, self.opened = bench, devices, opened
        self.state, self.path, self.limits = state, path, limits
        self.errors = [dict(one.errors) if isinstance(one, Opened) else {} for one in opened]
        self.stopped_by: tuple[int, Reached] | None = None
        self.not_written: str | None = None
        state.sessions += 1

    def now(self) -> tuple[ComputeDevice, ...]:
        """Return the devices with everything that is known of them so far."""
        return tuple(
            together(Collected(device, one).result(), [done.gpus[place] for done in self.state.rounds])
            for place, (device, one) in enumerate(zip(self.devices, self.opened, strict=True))
        )

    def run(self, evaluate: Evaluate, shown: Shown) -> None:
        """Run until the plan is done or a limit is reached. A signal leaves through its exception, with state kept."""
        plan, state = self.state.plan, self.state
        types = {type_ for one in self.opened if isinstance(one, Opened) for type_ in one.types}
        steps = tuple(round_steps(plan, tuple(types))) if types else ()
        try:
            while state.ended is None:
                if not self._able():
                    state.ended = "no-device"
                elif state.done >= plan.rounds or state.seconds > plan.seconds - plan.round_s / 2:
                    state.ended = "complete"
                else:
                    self._round(steps, shown)
                    self._alone()
                    self._notice(evaluate, shown)
                if state.ended is None:
                    self._keep(shown)
        finally:
            self._keep(shown)

    def _keep(self, shown: Shown) -> None:
        """Write the state. A disk that is full does not end the run: what it proves is still reported."""
        if not any(isinstance(one, Opened) for one in self.opened):
            return  # a run without a device can begin once torch is there
        try:
            write(self.path, self.state)
        except OSError as error:
            if self.not_written is None:
                shown.note(f"{self.path}: not written: {error.strerror}. The run goes on; a cut now loses its results.")
            self.not_written = error.strerror or str(error)
        else:
            self.not_written = None

    def _able(self) -> list[int]:
        """Return the places of the devices that opened and have not failed."""
        failed = {place for done in self.state.rounds for place, one in enumerate(done.gpus) if one.failed is not None}
        return [place for place, one in enumerate(self.opened) if isinstance(one, Opened) and place not in failed]

    def _round(self, steps: Sequence[ComputeStep], shown: Shown) -> None:
        """Run one round. What a signal leaves of it is kept as well, and the round is run again."""
        plan, state, before = self.state.plan, self.state, self.state.seconds
        if (go_on := getattr(self.bench, "go_on", None)) is not None and state.sessions > 1:
            go_on(state.done)
        collected = [Collected(device, one) for device, one in zip(self.devices, self.opened, strict=True)]
        for one, errors in zip(collected, self.errors, strict=True):
            one.before = errors
        able, seconds, whole = self._able(), 0.0, False
        try:
            for number, step in enumerate(steps):
                left = span(plan.seconds - before - seconds)
                text = f"round {state.done + 1} of {plan.rounds}, {step.label}, {left} left"
                shown.step(text, state.done * len(steps) + number, plan.rounds * len(steps))
                seconds += run_step(self.bench, step, collected, able, before + seconds)
                if self._reached(collected, able):
                    break
            whole = state.ended is None
        finally:
            made = [one.result() for one in collected]
            kept = [
                of_gpu(one, len(state.rounds), plan.rounds) if place in able else OfGpu()
                for place, one in enumerate(made)
            ]
            state.rounds.append(Round(seconds=seconds, whole=whole, gpus=kept))
            for place in able:
                for name, count in made[place].errors.items():
                    self.errors[place][name] = self.errors[place].get(name, 0) + count

    def _reached(self, collected: Sequence[Collected], able: Sequence[int]) -> bool:
        for place in able:
            made = collected[place].made
            limit = self.limits.reached(made.index, made.traces, made.errors)
            if limit is not None:
                self.state.ended, self.state.reason, self.stopped_by = "limit", limit.text, (place, limit)
                return True
        return False

    def _alone(self) -> None:
        """Measure alone what looks slow over the rounds so far, each rate once in a run."""
        if self.state.ended is not None:
            return
        known = {(place, name) for r in self.state.rounds for place, one in enumerate(r.gpus) for name in one.alone}
        low = [(at, step) for at, step in doubtful(self.now()) if (at, f"{step.kind} {step.what}") not in known]
        done = self.state.rounds[-1]
        for place, step in low[:MOST_ALONE]:
            one = done.gpus[place]
            answer = self.bench.run(step, (place,)).get(place) if place in self._able() else None
            if isinstance(answer, Failure):
                one.failed, one.failure = answer.kind, f"{step.label}: {answer.detail}"
            elif answer is not None and answer.rates:
                done.seconds += answer.seconds
                one.alone[f"{step.kind} {step.what}"] = rate_of(answer, step.kind)

    def _notice(self, evaluate: Evaluate, shown: Shown) -> None:
        """Keep and show each finding when it comes up."""
        state = self.state
        known = {(one.check, one.subject, one.cause, one.verdict) for one in state.noticed}
        for finding in evaluate(self.now()):
            key = (finding.check, finding.subject, finding.cause, finding.verdict)
            if finding.verdict not in BAD or len(state.noticed) >= MOST_NOTICED or key in known:
                continue
            known.add(key)
            state.noticed.append(
                Noticed(
                    at=round(state.seconds, 1),
                    time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    check=finding.check,
                    subject=finding.subject,
                    verdict=finding.verdict,
                    cause=finding.cause,
                    seen=str(finding.seen)[:200],
                )
            )
            shown.note(
                f"after {span(state.seconds)}: {finding.verdict.value} {finding.check} {finding.subject}: {finding.why}"
            )


SIMULATED_TICK_S = 3.0
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: its file. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


def burn_in(
    source: Source, options: BurnInOptions, shown: Shown, keep: Callable[[ComputeReport], None]
) -> ComputeReport:
    """Run it and evaluate it. Raises Unmeasurable, StateError if its file does not fit,
    OSError if it is not writable.

    keep: gets the report as soon as it is made: of what is proven so far when a signal ends the run, too.
    """
    clock = time.monotonic()
    with ExitStack() as stack:
        before = read(options.state)
        chosen = chosen_for(source, replace(options.options, tick_s=SIMULATED_TICK_S))
        stack.callback(chosen.bench.close)
        opened = chosen.bench.open()
        versions = next((one.versions for one in opened if isinstance(one, Opened)), {})
        identity, planned = _identity(source, chosen, versions), plan(options.seconds, small=not chosen.gpus)
        state = _state(options.state, before, identity, planned)
        limited = limits(chosen.gpus, opened, options.max_temperature_c)
        session = Session(chosen.bench, chosen.devices, opened, state, options.state, limited)
        write(options.state, state)  # what cannot be kept is known before hours of load

        def report() -> ComputeReport:
            made = _report(source, chosen, session)
            return replace(made, seconds=round(time.monotonic() - clock, 3))

        try:
            session.run(lambda devices: findings_of(with_settings(devices, chosen.gpus), chosen), shown)
            keep(made := report())
        except (KeyboardInterrupt, TerminatedError):
            keep(report())
            raise
        return made  # and the bench is closed, which takes a while


def _state(path: Path, before: State | None, identity: Identity, planned: BurnInPlan) -> State:
    if before is not None:
        fits(path, before, identity, planned)
        return before
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return State(identity=identity, plan=planned, started=started)


def _identity(source: Source, chosen: Chosen, versions: dict[str, str | None]) -> Identity:
    facts = source.read("system", "nvml", "simulation")
    reading, simulation = facts.nvml, facts.simulation
    return Identity(
        host=facts.system.hostname,
        gpucheck=__version__,
        driver=reading.driver_version if isinstance(reading, NvmlReading) else None,
        gpus=tuple(
            " ".join(part for part in (one.bus_id, one.uuid, one.name) if part) or str(one.index)
            for one in chosen.devices
        ),
        engine=chosen.engine,
        versions=versions,
        simulation=(simulation.profile, *simulation.faults) if simulation else (),
    )


def _report(source: Source, chosen: Chosen, session: Session) -> ComputeReport:
    state = session.state
    devices = with_settings(session.now(), chosen.gpus)
    made = BurnIn(
        planned_seconds=state.plan.seconds,
        seconds=round(state.seconds, 1),
        planned_rounds=state.plan.rounds,
        rounds=state.done,
        sessions=state.sessions,
        ended=state.ended or "interrupted",
        reason=state.reason,
        limits=session.limits.words() if chosen.gpus else (),
        noticed=tuple(state.noticed),
        hottest={
            str(device.index): max(degrees)
            for place, device in enumerate(devices)
            if (degrees := [c for one in state.rounds if (c := one.gpus[place].hottest) is not None])
        },
        state=str(session.path),
    )
    stopped_by = (devices[session.stopped_by[0]], session.stopped_by[1]) if session.stopped_by is not None else None
    findings = (ending(made, stopped_by), *findings_of(devices, chosen))
    lost = session.not_written
    return replace(
        report_of(source, chosen, devices, findings),
        level="burn-in",
        versions=state.identity.versions,
        started=state.started,
        load_seconds=made.seconds,
        burn_in=made,
        method=(*METHOD, *ROUNDS),
        notes=(*chosen.notes, *((f"{session.path}: not written: {lost}",) if lost else ())),
        verdict=worst(finding.verdict for finding in findings),
    )
