"""Run a plan: request every step, split a round that failed, and repeat low pairs alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from gpucheck.host.simulated import machine_directory
from gpucheck.measure.planning.plan import CopyPaths, MeasurementRequest, alone
from gpucheck.measure.values import Answer, CopyStep, Opened, Setup, Timing, Watch
from gpucheck.model.copies import HOST, DataCheck, Failure, Flow, Method
from gpucheck.model.device import Device
from gpucheck.processes.environment import python_module
from gpucheck.processes.worker import Lost, Worker, workplace

Pair = tuple[int, int]


@dataclass
class Results:
    """The results so far. Pairs are ordered positions; a pair that was not measured is missing from the tables.

    together: unidirectional timings of rounds with other pairs. alone: repeated alone; these replace the former.
    both: the two directions of an unordered pair simultaneously; both_alone: repeated without other copies.
    broken: pairs that are not measured any further. lost: children that were terminated or crashed.
    unread: why the operating system let nothing read NVML meanwhile.
    """

    devices: tuple[Device, ...]
    opened: Opened | None = None
    together: dict[Flow, Timing] = field(default_factory=dict)
    alone: dict[Flow, Timing] = field(default_factory=dict)
    both: dict[Pair, tuple[Timing, Timing]] = field(default_factory=dict)
    both_alone: dict[Pair, tuple[Timing, Timing]] = field(default_factory=dict)
    latency: dict[Flow, Timing] = field(default_factory=dict)
    host: dict[Flow, Timing] = field(default_factory=dict)
    sizes: list[Timing] = field(default_factory=list)
    checks: list[tuple[bool, DataCheck]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    broken: set[frozenset[int]] = field(default_factory=set)
    lost: int = 0
    gave_up: str | None = None
    interrupted: bool = False
    unread: str = ""
    rounds: int = 0
    device_s: float = 0.0

    def one_way(self, src: int, dst: int, method: Method = "ce-write") -> Timing | None:
        """Return the timing of an ordered pair: the one measured alone, if it exists."""
        flow = Flow(src=src, dst=dst, method=method)
        return self.alone.get(flow) or self.together.get(flow)

    def measured(self) -> dict[Pair, Timing]:
        """Return the timings of one direction: those measured alone, where they exist."""
        return by_pair(self.together | self.alone, "ce-write")

    def both_ways(self) -> dict[Pair, tuple[Timing, Timing]]:
        """Return the two directions of every unordered pair, lower position first."""
        return self.both | self.both_alone

    def take(self, step: CopyStep, answer: Answer) -> None:
        self.device_s += answer.device_s
        self.checks += [(step.purpose == "integrity under load", check) for check in answer.checks]
        both = {"both directions": self.both, "both directions alone": self.both_alone}
        tables = {"alone": self.alone, "latency": self.latency, "host and device": self.host}
        if step.purpose == "sizes":
            self.sizes += answer.timings
        elif step.purpose in both:
            both[step.purpose].update(_both(answer.timings))
        else:
            tables.get(step.purpose, self.together).update({timing.flow: timing for timing in answer.timings})


def by_pair(timings: Mapping[Flow, Timing], method: Method) -> dict[Pair, Timing]:
    """Return the timings by this method between two devices."""
    chosen = {flow: one for flow, one in timings.items() if flow.method == method and HOST not in (flow.src, flow.dst)}
    return {(flow.src, flow.dst): one for flow, one in chosen.items() if flow.src != flow.dst}


def _both(timings: tuple[Timing, ...]) -> dict[Pair, tuple[Timing, Timing]]:
    by_flow = {(t.flow.src, t.flow.dst): t for t in timings}
    return {(a, b): (there, by_flow[b, a]) for (a, b), there in by_flow.items() if a < b and (b, a) in by_flow}


REPEATED = ("one direction", "both directions")  # purposes whose low pairs are measured again alone
MOST_REPEATED = 8  # pairs; if every pair is low, this number is sufficient
MOST_LOST = 4  # children: each takes its deadline, and a host where four copies hang is faulty
LOST = ("stuck", "crashed", "killed", "defect", "no-memory")
DIVISIBLE = ("refused", "stuck", "crashed", "not-timed", "no-peers-left")  # fewer simultaneous flows may succeed
# Pairs with low results, the slowest first: ordered ones, and those with both directions at once.
Doubts = tuple[tuple[Pair, ...], tuple[Pair, ...]]
Low = Callable[[Results], Doubts]

# Returns the result of a step, or why there is none: a supervised child, or an engine in this process for tests.
RunStep = Callable[[CopyStep], Answer | Failure]


def run(
    steps: Sequence[CopyStep],
    run_step: RunStep,
    results: Results,
    *,
    machine: CopyPaths,
    request: MeasurementRequest,
    low: Low = lambda _: ((), ()),
    watch: Watch = Watch(),  # noqa: B008 - immutable
) -> None:
    """Fill ``results``. low: what is measured again alone."""

    def heard(step: CopyStep) -> Answer | Failure:
        answer = run_step(step)
        if isinstance(answer, Answer):
            watch.answered(step, answer)
        return answer

    for purpose, group in groupby(enumerate(steps), key=lambda item: item[1].purpose):
        for number, step in group:
            watch.step(step.label, number, len(steps))
            _do(heard, step, results)
            if results.gave_up is not None:
                return
        if purpose in REPEATED:
            _repeat_low(heard, results, machine, request, low)


def _count(failure: Failure, results: Results) -> None:
    if failure.kind in ("missing-package", "no-process", "not-started"):
        results.gave_up = failure.detail
    elif failure.kind in LOST:
        results.lost += 1
        if results.lost >= MOST_LOST:
            results.gave_up = f"{results.lost} measuring processes were lost"


def _do(run_step: RunStep, step: CopyStep, results: Results) -> None:
    """Run one step without broken pairs. The flows of a failed round run again one by one, to find the failing one."""
    flows = tuple(flow for flow in step.flows if frozenset((flow.src, flow.dst)) not in results.broken)
    if not any(HOST not in (f.src, f.dst) or step.operation == "bandwidth" for f in flows):
        return
    step = replace(step, flows=flows)
    answer = run_step(step)
    if isinstance(answer, Failure) and answer.kind == "no-peers-left":
        # A GPU without NVSwitch maps at most eight peers; the next child starts with none.
        answer = run_step(step)
    if isinstance(answer, Answer):
        results.take(step, answer)
        results.rounds += step.purpose == "one direction"
        return
    _count(answer, results)
    if results.gave_up is not None or len(flows) == 1 or answer.kind not in DIVISIBLE:
        _record(answer, step, results)
    elif not _one_by_one(run_step, step, results):
        results.failures.append(answer)


def _one_by_one(run_step: RunStep, step: CopyStep, results: Results) -> bool:
    found = False
    for flow in step.flows:
        if flow.dst == HOST and step.operation == "integrity":
            continue
        single = replace(step, flows=(flow,))
        again = run_step(single)
        if isinstance(again, Answer):
            results.take(single, again)
            continue
        found = True
        _count(again, results)
        _record(again, single, results)
        if results.gave_up is not None:
            break
    return found


def _record(failure: Failure, step: CopyStep, results: Results) -> None:
    """Record the failure; a pair whose copy failed is not tried again, every other one stays in the run."""
    results.failures.append(failure)
    if not failure.is_the_copys:
        return
    for flow in step.flows if len(step.flows) == 1 else failure.flows:
        results.broken.add(frozenset((flow.src, flow.dst)))


def _repeat_low(run_step: RunStep, results: Results, machine: CopyPaths, request: MeasurementRequest, low: Low) -> None:
    """Measure low pairs alone, one direction also through host memory, to compare peer access with it."""
    for flows in again(results, low(results)):
        if results.gave_up is not None:
            return
        _do(run_step, alone(machine, request, flows), results)
        if len(flows) == 1 and "staged" in request.methods:
            _do(run_step, alone(machine, request, (replace(flows[0], method="staged"),)), results)


def again(results: Results, doubts: Doubts) -> Iterator[tuple[Flow, ...]]:
    """Yield what was not measured alone yet of each low pair, up to the limit of a run.

    That is each direction, and both at once as soon as a round measured that: what was measured alone is compared with
    nothing that was measured together with other copies.
    """
    one_way, both_ways = doubts
    before = [(flow.src, flow.dst) for flow in results.alone]
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in (*before, *one_way, *both_ways))
    for a, b in [*pairs][:MOST_REPEATED]:
        there, back = Flow(src=a, dst=b), Flow(src=b, dst=a)
        yield from ((flow,) for flow in (there, back) if flow in results.together and flow not in results.alone)
        if (a, b) in results.both and (a, b) not in results.both_alone:
            yield there, back


def total(timings: Iterable[Timing]) -> float:
    """Return 10**9 bytes per second of simultaneous flows, over the time of the slowest."""
    taken = tuple(timings)
    longest = max(t.median_s * t.repeats for t in taken)
    return sum(t.size * t.repeats for t in taken) / longest / 1e9


CHILD = python_module("gpucheck.measure.running.child")
OPEN_S = 120.0  # importing a framework from a cold disk and making contexts on eight GPUs takes at most this long
SLACK = 10.0  # times the planned device time, after which a step is stuck


class Supervised:
    """A child with an engine; started on first use, and again after one was lost. Use as a context manager.

    patience_s: minimum time limit of a step. opened: the setup of the first child, None before.
    removed: ``NAME=value`` of each environment variable that is removed for the child.
    """

    def __init__(self, setup: Setup, patience_s: float, command: Sequence[str] = CHILD) -> None:
        self.setup = setup
        self.patience_s = patience_s
        self.command = command
        self.opened: Opened | None = None
        self.worker: Worker | None = None
        self._place = ExitStack()

    def __enter__(self) -> "Supervised":  # noqa: PYI034 - Self needs Python 3.11
        self.environment, self.removed = self._place.enter_context(workplace("copies"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.worker is not None:
            self.worker.end(by_itself=kind is None)
        self._place.close()

    def open(self) -> Opened | Failure:
        try:
            self.worker = Worker(self.command, self.environment, simulated=machine_directory() is not None)
        except OSError as error:
            return Failure(kind="no-process", purpose="open", detail=f"no child process: {error}")
        # A device that hangs for the first child also hangs for the second, so its limit is shorter.
        limit = OPEN_S if self.opened is None else max(self.patience_s, OPEN_S / 4)
        answer: Opened | Failure = self._exchange(self.worker, self.setup, limit, "open", Opened)
        if isinstance(answer, Opened):
            self.opened = self.opened or answer
        return answer

    def run_step(self, step: CopyStep) -> Answer | Failure:
        """Run one step. A child that hangs, exits or sends an invalid result is terminated."""
        if self.worker is None:
            opened = self.open()
            if isinstance(opened, Failure):
                return replace(opened, flows=step.flows, purpose=step.purpose)
        assert self.worker is not None  # noqa: S101 - it has just opened
        limit = max(self.patience_s, SLACK * step.planned_s)
        answer: Answer | Failure = self._exchange(self.worker, step, limit, step.purpose, Answer)
        if isinstance(answer, Failure) and answer.kind != "not-timed" and self.worker is not None:
            # A CUDA error may have corrupted the context: the next step gets a new child.
            self.worker.end()
            self.worker = None
        if isinstance(answer, Failure) and not answer.flows:
            return replace(answer, flows=step.flows)
        return answer

    def _exchange(self, worker: Worker, request: Setup | CopyStep, limit_s: float, purpose: str, shape: Any) -> Any:
        worker.send(request)
        try:
            return worker.answer(shape | Failure, limit_s)
        except Lost as lost:
            self.worker = None
            return Failure(kind=lost.kind, purpose=purpose, detail=lost.detail)
