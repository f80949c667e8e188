"""Run the rounds of a burn-in that are left, and keep what was measured after each."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from gpucheck.compute.burnin.limits import Limits
from gpucheck.compute.burnin.plan import round_steps, span
from gpucheck.compute.burnin.state import MOST_NOTICED, State, write
from gpucheck.compute.engines.protocol import Bench
from gpucheck.compute.evaluation import doubtful
from gpucheck.compute.plan import MOST_ALONE
from gpucheck.compute.running.run import Collected, rate_of, run_step
from gpucheck.compute.values import Failure, Opened, Step
from gpucheck.measure.values import Device
from gpucheck.model import Finding, Verdict
from gpucheck.model.compute import ComputeDevice, Noticed

# Evaluated after the first rounds, and then this often in a run: findings come up as they happen.
FIRST_ROUNDS, EVALUATIONS = 4, 24
BAD = (Verdict.WARN, Verdict.FAIL)


class Shown(NamedTuple):
    """Where a run reports: step (text, number, count), a finding that came up, a note."""

    step: Callable[[str, int, int], None]
    note: Callable[[str], None]


class Session:
    """One start of gpucheck within a burn-in. Works on state in place."""

    def __init__(self, bench: Bench, devices: Sequence[Device], state: State, path: Path, limits: Limits) -> None:
        self.bench, self.devices, self.state, self.path, self.limits = bench, devices, state, path, limits
        self.opened: Sequence[Opened | Failure] = ()
        self.errors: list[dict[str, int]] = []
        self.stopped_by: int | None = None
        self.not_written: str | None = None

    def begin(self, opened: Sequence[Opened | Failure]) -> None:
        """Set the devices, which are open, and count this start."""
        self.opened = opened
        self.errors = [dict(one.errors) if isinstance(one, Opened) else {} for one in opened]
        self.state.sessions += 1

    @property
    def useful(self) -> bool:
        """Return whether a device opened: a run without one is not kept, so that it can begin once torch is there."""
        return any(isinstance(one, Opened) for one in self.opened)

    def known(self) -> list[ComputeDevice]:
        """Return the devices as they were opened."""
        return [Collected(device, one).result() for device, one in zip(self.devices, self.opened, strict=True)]

    def now(self) -> tuple[ComputeDevice, ...]:
        """Return the devices with everything that is known of them so far."""
        pairs = zip(self.state.gpus, self.known(), strict=True)
        return tuple(totals.device(known) for totals, known in pairs)

    def run(self, evaluate: Callable[[tuple[ComputeDevice, ...]], Sequence[Finding]], shown: Shown) -> None:
        """Run until the plan is done or a limit is reached. A signal leaves through its exception, with state kept."""
        plan, state = self.state.plan, self.state
        types = {type_ for one in self.opened if isinstance(one, Opened) for type_ in one.types}
        steps = tuple(round_steps(plan, tuple(types))) if types else ()
        for place, one in enumerate(self.opened):
            if isinstance(one, Failure):
                state.gpus[place].failed, state.gpus[place].failure = one.kind, one.detail
        try:
            while state.ended is None:
                if not any(self._able(place) for place in range(len(self.devices))):
                    state.ended = "no-device"
                elif state.rounds >= plan.rounds or state.seconds > plan.seconds - plan.round_s / 2:
                    state.ended = "complete"
                else:
                    self._round(steps, shown)
                    self._alone()
                    self._evaluate(evaluate, shown)
                if state.ended is None:
                    self.keep(shown)
        finally:
            self.keep(shown)

    def keep(self, shown: Shown) -> None:
        """Write the state. A disk that is full does not end the run: what it proves is still reported."""
        if not self.useful:
            return
        try:
            write(self.path, self.state)
        except OSError as error:
            if self.not_written is None:
                shown.note(f"{self.path}: not written: {error.strerror}. The run goes on; a cut now loses its results.")
            self.not_written = error.strerror or str(error)
        else:
            self.not_written = None

    def _able(self, place: int) -> bool:
        return isinstance(self.opened[place], Opened) and self.state.gpus[place].failed is None

    def _round(self, steps: Sequence[Step], shown: Shown) -> None:
        """Run one round. What a signal leaves of it is kept as well, and the round is run again."""
        state, number = self.state, self.state.rounds
        if (go_on := getattr(self.bench, "go_on", None)) is not None and state.sessions > 1:
            go_on(number)
        collected = [Collected(device, one) for device, one in zip(self.devices, self.opened, strict=True)]
        for one, before in zip(collected, self.errors, strict=True):
            one.before = before
        left = [place for place in range(len(self.devices)) if self._able(place)]
        whole = False
        try:
            for place_of_step, step in enumerate(steps):
                self._show(step, place_of_step, len(steps), shown)
                state.seconds += run_step(self.bench, step, collected, left, state.seconds)
                if self._reached(collected, left):
                    break
            whole = True
        finally:
            for place in left:
                made = collected[place].result()
                state.gpus[place].add(made, number, made.errors)
                for name, count in made.errors.items():
                    self.errors[place][name] = self.errors[place].get(name, 0) + count
            state.rounds += whole and state.ended is None

    def _show(self, step: Step, number: int, count: int, shown: Shown) -> None:
        plan, done = self.state.plan, self.state.seconds
        text = f"round {self.state.rounds + 1} of {plan.rounds}, {step.label}, {span(plan.seconds - done)} left"
        shown.step(text, self.state.rounds * count + number, plan.rounds * count)

    def _reached(self, collected: Sequence[Collected], left: Sequence[int]) -> bool:
        for place in left:
            made = collected[place].made
            why = self.limits.reached(made.index, made.traces, made.errors)
            if why is not None:
                self.state.ended, self.state.reason, self.stopped_by = "limit", why, place
                return True
        return False

    def _alone(self) -> None:
        """Measure alone what looks slow over the rounds so far, each rate once in a run."""
        low = doubtful(self.now()) if self.state.ended is None else ()
        new = [(at, step) for at, step in low if f"{step.kind} {step.what}" not in self.state.gpus[at].alone]
        for place, step in new[:MOST_ALONE]:
            totals = self.state.gpus[place]
            answer = self.bench.run(step, (place,)).get(place) if self._able(place) else None
            if isinstance(answer, Failure):
                totals.failed, totals.failure = answer.kind, f"{step.label}: {answer.detail}"
            elif answer is not None and answer.rates:
                self.state.seconds += answer.seconds
                totals.alone[f"{step.kind} {step.what}"] = rate_of(answer, step.kind)

    def _evaluate(self, evaluate: Callable[[tuple[ComputeDevice, ...]], Sequence[Finding]], shown: Shown) -> None:
        state, plan = self.state, self.state.plan
        often = max(1, plan.rounds // EVALUATIONS)
        if state.rounds > FIRST_ROUNDS and state.rounds % often and state.ended is None:
            return
        for finding in evaluate(self.now()):
            known = (finding.check, finding.subject, finding.cause, finding.verdict)
            if finding.verdict not in BAD or len(state.noticed) >= MOST_NOTICED:
                continue
            if known in {(one.check, one.subject, one.cause, one.verdict) for one in state.noticed}:
                continue
            state.noticed.append(noticed(finding, state.seconds))
            shown.note(
                f"after {span(state.seconds)}: {finding.verdict.value} {finding.check} {finding.subject}: {finding.why}"
            )


def noticed(finding: Finding, at: float) -> Noticed:
    """Return what is kept of a finding when it comes up."""
    return Noticed(
        at=round(at, 1),
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        check=finding.check,
        subject=finding.subject,
        verdict=finding.verdict,
        cause=finding.cause,
        seen=str(finding.seen)[:200],
    )
