"""Run a plan: request every step, split a round that failed, and repeat low pairs alone."""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from gpucheck.measure.planning.plan import Machine, Wish, alone
from gpucheck.measure.running.results import Results
from gpucheck.measure.values import HOST, Answer, Failure, Flow, Step, Timing

REPEATED = ("one direction", "both directions")  # purposes whose low pairs are measured again alone
MOST_LOST = 4  # children: each takes its deadline, and a host where four copies hang is faulty
LOST = ("stuck", "crashed", "killed", "defect", "no-memory")
TOGETHER = ("all to all", "one to all")  # their results are of all copies together
DIVISIBLE = ("refused", "stuck", "crashed", "not-timed", "no-peers-left")  # fewer simultaneous flows may succeed
Progress = Callable[[Step, int], None]
Low = Callable[[Results], Iterable[tuple[Flow, ...]]]


class Asked(Protocol):
    """Runs steps: a supervised child, or an engine in this process for tests."""

    def ask(self, step: Step) -> Answer | Failure:
        """Return the result, or why there is none."""


def run(
    steps: Iterable[Step],
    asked: Asked,
    results: Results,
    *,
    machine: Machine,
    wish: Wish,
    low: Low,
    progress: Progress = lambda step, number: None,  # noqa: ARG005 - no progress shown
) -> Results:
    """Fill ``results``. low: flows of pairs with low results that were not measured alone yet."""
    lost = _Lost(results)
    before = ""
    for number, step in enumerate(steps):
        if before in REPEATED and step.purpose != before:
            _repeat_low(asked, results, machine, wish, low, lost)
        before = step.purpose
        progress(step, number)
        _do(asked, step, results, lost)
        if lost.enough():
            return results
    if before in REPEATED:
        _repeat_low(asked, results, machine, wish, low, lost)
    return results


class _Lost:
    """The number of lost children, and its limit."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.children = 0

    def count(self, failure: Failure) -> None:
        if failure.kind in ("missing-package", "no-process", "not-started"):
            self.results.gave_up = failure.detail
        elif failure.kind in LOST:
            self.children += 1
            if self.children >= MOST_LOST:
                self.results.gave_up = f"{self.children} measuring processes were lost"

    def enough(self) -> bool:
        return self.results.gave_up is not None


def _do(asked: Asked, step: Step, results: Results, lost: _Lost) -> None:
    """Run one step without broken pairs. The flows of a failed round run again one by one, to find the failing one."""
    flows = tuple(flow for flow in step.flows if frozenset((flow.src, flow.dst)) not in results.broken)
    if not any(HOST not in (f.src, f.dst) or step.purpose == "host and device" for f in flows):
        return
    step = replace(step, flows=flows)
    answer = asked.ask(step)
    if isinstance(answer, Failure) and answer.kind == "no-peers-left":
        # A GPU without NVSwitch maps at most eight peers; the next child starts with none.
        answer = asked.ask(step)
    if isinstance(answer, Answer):
        results.take(step, answer.timings, answer.checks)
        results.device_s += answer.device_s
        results.rounds += step.purpose == "one direction"
        return
    lost.count(answer)
    divisible = answer.is_the_copys if step.purpose in TOGETHER else answer.kind in DIVISIBLE
    if lost.enough() or len(flows) == 1 or not divisible:
        _record(answer, step, results)
    elif not _one_by_one(asked, step, results, lost):
        results.failures.append(answer)


def _one_by_one(asked: Asked, step: Step, results: Results, lost: _Lost) -> bool:
    """Run each flow of a failed round alone; return whether one of them fails too."""
    found = False
    for flow in step.flows:
        if flow.dst == HOST and step.operation == "integrity":
            continue
        single = replace(step, flows=(flow,))
        again = asked.ask(single)
        if isinstance(again, Answer):
            if step.purpose not in TOGETHER:
                results.take(single, again.timings, again.checks)
            results.device_s += again.device_s
            continue
        found = True
        lost.count(again)
        _record(again, single, results)
        if lost.enough():
            break
    return found


def _record(failure: Failure, step: Step, results: Results) -> None:
    """Record the failure; a pair whose copy failed is not tried again, every other one stays in the run."""
    results.failures.append(failure)
    if not failure.is_the_copys:
        return
    for flow in step.flows if len(step.flows) == 1 else failure.flows:
        results.broken.add(frozenset((flow.src, flow.dst)))


def _repeat_low(asked: Asked, results: Results, machine: Machine, wish: Wish, low: Low, lost: _Lost) -> None:
    """Measure low pairs alone, unidirectional ones also through host memory, to compare peer access with it."""
    for flows in low(results):
        if lost.enough():
            return
        _do(asked, alone(machine, wish, flows), results, lost)
        if len(flows) == 1 and "staged" in wish.methods:
            staged = replace(flows[0], method="staged")
            _do(asked, replace(alone(machine, wish, (staged,)), purpose="through host memory"), results, lost)


def total(timings: Iterable[Timing]) -> float:
    """Return 10**9 bytes per second of simultaneous flows, over the time of the slowest."""
    taken = tuple(timings)
    longest = max(t.median_s * t.repeats for t in taken)
    return sum(t.size * t.repeats for t in taken) / longest / 1e9
