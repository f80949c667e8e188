"""Timing queued copies: every stream is held back until all copies are queued, then all start at once.

Without that the first copies run while Python still queues the rest, and the launches are measured with them. Whether
it worked is checked each time: if the gate opened too early, the sample is discarded and the gate held longer. How long
queueing a copy takes is measured with every sample, so that the next gate is held long enough at once.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from gpucheck.measure.engines.protocol import NotTimed

COPY_S = 30e-6  # above what queueing one copy takes in Python
LEAST_S, MOST_S = 0.2e-3, 0.1
MARGIN = 2.0  # times the measured queueing time
CYCLES_PER_S = 2e9
TRIES = 2  # one more with the queueing time that the first one measured; then fewer copies are the remedy


class Runtime(Protocol):
    """What is needed of CUDA. Streams and events are the library's own."""

    def event(self, stream: Any) -> Any:
        """A timing event of the stream's device."""

    def record(self, event: Any, stream: Any) -> None:
        """Mark this point of the stream."""

    def wait(self, stream: Any, event: Any) -> None:
        """Let the stream wait for the event, of whichever device."""

    def done(self, event: Any) -> bool:
        """Whether the stream has reached it."""

    def synchronize(self, event: Any) -> None:
        """Wait for it."""

    def seconds(self, start: Any, end: Any) -> float:
        """Between two events of one device."""

    def hold(self, stream: Any, cycles: int) -> None:
        """Queue a kernel that spins for so many clock cycles."""


class Lane(NamedTuple):
    """One flow's place in the queue. first: the stream that begins; last: the one that ends, of another device maybe.

    copy: queues one copy.
    """

    first: Any
    last: Any
    copy: Callable[[], None]


class Gate:
    """The stream that all lanes wait for. copy_s: how long it is held for each copy, learnt from call to call."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.copy_s = COPY_S

    def seconds(self, copies: int) -> float:
        """Return how long to hold it while so many copies are queued."""
        return min(MOST_S, max(LEAST_S, self.copy_s * copies))

    def learn(self, copies: int, queued_s: float) -> None:
        """Remember how long queueing took."""
        self.copy_s = max(COPY_S, MARGIN * queued_s / copies)


def timed(
    runtime: Runtime,
    gate: Gate,
    lanes: Sequence[Lane],
    counts: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """Return seconds of each lane from the common start to its end.

    By events where a lane begins and ends on one stream, else by the host's clock, which is right to some 10 us.
    Raises NotTimed when the copies could not be queued before the gate opened.
    """
    for _ in range(TRIES):
        opened = runtime.event(gate.stream)
        runtime.hold(gate.stream, round(gate.seconds(sum(counts)) * CYCLES_PER_S))
        runtime.record(opened, gate.stream)
        ends = []
        queueing = clock()
        for lane, count in zip(lanes, counts, strict=True):
            runtime.wait(lane.first, opened)
            start, end = runtime.event(lane.first), runtime.event(lane.last)
            runtime.record(start, lane.first)
            for _ in range(count):
                lane.copy()
            runtime.record(end, lane.last)
            ends.append((start, end))
        held = not runtime.done(opened)
        gate.learn(sum(counts), clock() - queueing)
        runtime.synchronize(opened)
        begin = clock()
        seconds = tuple(
            _seconds(runtime, lane, *events, begin, clock) for lane, events in zip(lanes, ends, strict=True)
        )
        if held:
            return seconds
    copies = sum(counts)
    raise NotTimed(f"{copies} {'copy was' if copies == 1 else 'copies were'} not queued before the first one began")


def _seconds(runtime: Runtime, lane: Lane, start: Any, end: Any, begin: float, clock: Callable[[], float]) -> float:
    runtime.synchronize(end)
    if lane.first is lane.last:
        return runtime.seconds(start, end)
    return clock() - begin
