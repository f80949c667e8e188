"""Timing queued copies: every stream is held back until all copies are queued, then all start at once.

Without that the first copies run while Python still queues the rest, and the launches are measured with them. Whether
it worked is checked each time: if the gate opened too early, the sample is thrown away and held longer.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

CYCLES_PER_COPY = 60_000  # 30 microseconds at 2 GHz: above what queueing one copy takes in Python
CYCLES_LEAST = 400_000
TRIES = 6
LONGER = 4


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


def timed(
    runtime: Runtime,
    gate: Any,
    lanes: Sequence[Lane],
    counts: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """Seconds of each lane from the common start to its end.

    By events where a lane begins and ends on one stream, else by the host's clock, which is right to some 10 us.
    Raises RuntimeError when the copies could not be queued before the gate opened, however long it was held.
    """
    cycles = max(CYCLES_LEAST, CYCLES_PER_COPY * sum(counts))
    for _ in range(TRIES):
        opened = runtime.event(gate)
        runtime.hold(gate, cycles)
        runtime.record(opened, gate)
        ends = []
        for lane, count in zip(lanes, counts, strict=True):
            runtime.wait(lane.first, opened)
            start, end = runtime.event(lane.first), runtime.event(lane.last)
            runtime.record(start, lane.first)
            for _ in range(count):
                lane.copy()
            runtime.record(end, lane.last)
            ends.append((start, end))
        held = not runtime.done(opened)
        runtime.synchronize(opened)
        begin = clock()
        seconds = tuple(
            _seconds(runtime, lane, *events, begin, clock) for lane, events in zip(lanes, ends, strict=True)
        )
        if held:
            return seconds
        cycles *= LONGER
    raise RuntimeError(
        f"{sum(counts)} copies could not be queued before they started: the host is too slow or too busy"
    )


def _seconds(runtime: Runtime, lane: Lane, start: Any, end: Any, begin: float, clock: Callable[[], float]) -> float:
    runtime.synchronize(end)
    if lane.first is lane.last:
        return runtime.seconds(start, end)
    return clock() - begin
