"""Time queued copies: a gate blocks every stream until all copies are queued, then all start simultaneously.

Without the gate the first copies run while Python queues the rest, and the result includes the launches. Each sample
is checked: if the gate opened too early, the sample is discarded and the gate stays closed longer. The queueing time of
a copy is measured with every sample, so that the next gate stays closed long enough.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from gpucheck.measure.engines.protocol import NotTimed

COPY_S = 30e-6  # above what queueing one copy takes in Python
LEAST_S, MOST_S = 0.2e-3, 0.1
MARGIN = 2.0  # times the measured queueing time
CYCLES_PER_S = 2e9
TRIES = 2  # one more with the measured queueing time; after that, fewer copies are queued


class Runtime(Protocol):
    """Required CUDA functions. Streams and events are objects of the library."""

    def event(self, stream: Any) -> Any:
        """Return a timing event of the stream's device."""

    def record(self, event: Any, stream: Any) -> None:
        """Record the event at this point of the stream."""

    def wait(self, stream: Any, event: Any) -> None:
        """Let the stream wait for the event of any device."""

    def done(self, event: Any) -> bool:
        """Return whether the stream has reached the event."""

    def synchronize(self, event: Any) -> None:
        """Wait for the event."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two events of one device."""

    def hold(self, stream: Any, cycles: int) -> None:
        """Queue a kernel that spins for so many clock cycles."""


class Lane(NamedTuple):
    """One flow's place in the queue. first: stream of the first copy; last: of the last copy, on any device.

    copy: queues one copy.
    """

    first: Any
    last: Any
    copy: Callable[[], None]


class Gate:
    """The stream that all lanes wait for. copy_s: time to block for each copy, updated by every call."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.copy_s = COPY_S

    def seconds(self, copies: int) -> float:
        """Return how long to block while this number of copies is queued."""
        return min(MOST_S, max(LEAST_S, self.copy_s * copies))

    def learn(self, copies: int, queued_s: float) -> None:
        """Record how long queueing took."""
        self.copy_s = max(COPY_S, MARGIN * queued_s / copies)


def timed(
    runtime: Runtime,
    gate: Gate,
    lanes: Sequence[Lane],
    counts: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """Return seconds of each lane from the common start to its end.

    Measured by events if a lane begins and ends on one stream, else by the host's clock, with an error of about 10 us.
    Raises NotTimed if the copies could not be queued before the gate opened.
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
