"""Time queued copies: all streams wait for one word of pinned host memory, so that all copies start together.

This needs no spinning kernel and no estimate of clock cycles: the host writes the word after everything is queued. A
full launch queue blocks the host before that; then a second thread writes the word, and the sample is discarded. One
thread serves all samples: starting one for each took longer than queueing the copies.

Where the driver rejects such a wait, as it may with confidential computing, a kernel that spins for a time takes its
place. Copies that block the host behind either of them are timed by events alone.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpucheck.measure.engines.driver.calls import Calls
from gpucheck.measure.engines.driver.gpu import CudaGpu, Line
from gpucheck.measure.values import NotTimed
from gpucheck.processes.contention import waited_s

PATIENCE_S = 1.0  # queueing the most copies of a step takes a few ms
SHUT, OPEN = 0, 1
COPY_S = 50e-6  # above what queueing one copy takes in Python
LEAST_SPIN_S, MOST_SPIN_S, MARGIN, TRIES = 0.5e-3, 0.1, 2.0, 2


class Lane(NamedTuple):
    """One flow of a step. gpu: its GPU. line: its stream, used by no other lane. queue: queues one copy."""

    gpu: CudaGpu
    line: Line
    queue: Callable[[], None]


class Gate:
    """The word that streams wait for, and the timing of their copies. Its thread ends with the gate or the process."""

    def __init__(self, calls: Calls, patience_s: float = PATIENCE_S) -> None:
        names = calls.names
        self._calls, self._patience_s = calls, patience_s
        address = calls("cuMemHostAlloc", 64, names.CU_MEMHOSTALLOC_PORTABLE | names.CU_MEMHOSTALLOC_DEVICEMAP)
        self._word = ctypes.c_uint32.from_address(int(address))
        self._address = int(calls("cuMemHostGetDevicePointer", address, 0))
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._shut_at: float | None = None
        self._late = False
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def timed(self, lanes: Sequence[Lane], counts: Sequence[int]) -> tuple[float, ...]:
        """Return seconds of each lane, by CUDA events of its own GPU. Raises NotTimed, CudaError."""
        calls = self._calls
        with self._lock:
            self._word.value, self._shut_at, self._late = SHUT, self._running_s(), False
        try:
            for lane, count in zip(lanes, counts, strict=True):
                lane.gpu.use()
                flag = calls.names.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
                calls("cuStreamWaitValue32", lane.line.stream, self._address, OPEN, flag)
                queue(calls, (lane,), (count,))
        finally:
            with self._lock:  # also after an error, so that no stream waits
                self._word.value, self._shut_at = OPEN, None
        found = _seconds(calls, lanes)
        if self._late:
            raise not_taken(sum(counts))
        return found

    @staticmethod
    def _running_s() -> float:
        """A clock that stands still while the process, whose main thread queues the copies, waits for a processor."""
        return time.monotonic() - waited_s(os.getpid())

    def _watch(self) -> None:
        while not self._closed.wait(self._patience_s / 4):
            with self._lock:
                if self._shut_at is not None and self._running_s() - self._shut_at > self._patience_s:
                    self._word.value, self._shut_at, self._late = OPEN, None, True


class SpinGate:
    """A kernel on the GPU of the first lane that all streams wait for. It ends by the clock of that GPU."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._copy_s = calls, COPY_S
        self._lines: dict[CudaGpu, Line] = {}

    def close(self) -> None:
        """Nothing to end."""

    def timed(self, lanes: Sequence[Lane], counts: Sequence[int]) -> tuple[float, ...]:
        """Return seconds of each lane, by CUDA events of its own GPU. Raises NotTimed, CudaError."""
        calls, copies = self._calls, sum(counts)
        first = lanes[0].gpu
        if first not in self._lines:
            self._lines[first] = first.new_line()
        gate = self._lines[first]
        for _ in range(TRIES):
            spin_s = min(MOST_SPIN_S, max(LEAST_SPIN_S, self._copy_s * copies))
            begin = time.monotonic()
            first.launch("spin", 1, round(spin_s * 1e9), line=gate)
            calls("cuEventRecord", gate.end, gate.stream)
            for lane in lanes:
                lane.gpu.use()
                calls("cuStreamWaitEvent", lane.line.stream, gate.end, 0)
            queue(calls, lanes, counts)
            queued_s = time.monotonic() - begin
            self._copy_s = max(COPY_S, MARGIN * queued_s / max(1, copies))
            found = _seconds(calls, lanes)
            if queued_s < spin_s:  # the kernel began after the clock was read, so it ended after everything was queued
                return found
        raise not_taken(copies)


def ungated(calls: Calls, lanes: Sequence[Lane], counts: Sequence[int]) -> tuple[float, ...]:
    """Return seconds of each lane whose copies start as they are queued. Raises CudaError."""
    queue(calls, lanes, counts)
    return _seconds(calls, lanes)


def queue(calls: Calls, lanes: Sequence[Lane], counts: Sequence[int]) -> None:
    """Queue the copies of each lane between its two events."""
    for lane, count in zip(lanes, counts, strict=True):
        lane.gpu.use()
        calls("cuEventRecord", lane.line.start, lane.line.stream)
        for _ in range(count):
            lane.queue()
        calls("cuEventRecord", lane.line.end, lane.line.stream)


def not_taken(copies: int) -> NotTimed:
    return NotTimed(f"the launch queue did not take {copies} {'copy' if copies == 1 else 'copies'} immediately")


def _seconds(calls: Calls, lanes: Sequence[Lane]) -> tuple[float, ...]:
    for lane in lanes:
        calls("cuEventSynchronize", lane.line.end)
    return tuple(calls.seconds(lane.line.start, lane.line.end) for lane in lanes)
