"""Time queued copies: all streams wait for one word of pinned host memory, so that all copies start together.

This needs no spinning kernel and no estimate of clock cycles: the host writes the word after everything is queued. A
full launch queue blocks the host before that; then a second thread writes the word, and the sample is discarded. One
thread serves all samples: starting one for each took longer than queueing the copies.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpucheck.measure.engines.driver.calls import Calls
from gpucheck.measure.engines.driver.gpu import Gpu, Line
from gpucheck.measure.engines.protocol import NotTimed
from gpucheck.processes.contention import waited_s

PATIENCE_S = 1.0  # queueing the most copies of a step takes a few ms
SHUT, OPEN = 0, 1


class Lane(NamedTuple):
    """One flow of a step. gpu: its GPU. line: its stream, used by no other lane. queue: queues one copy."""

    gpu: Gpu
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
        """End the thread."""
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
                calls("cuEventRecord", lane.line.start, lane.line.stream)
                for _ in range(count):
                    lane.queue()
                calls("cuEventRecord", lane.line.end, lane.line.stream)
        finally:
            with self._lock:  # also after an error, so that no stream waits
                self._word.value, self._shut_at = OPEN, None
        for lane in lanes:
            calls("cuEventSynchronize", lane.line.end)
        if self._late:
            copies = sum(counts)
            raise NotTimed(f"the launch queue did not take {copies} {'copy' if copies == 1 else 'copies'} immediately")
        return tuple(calls.seconds(lane.line.start, lane.line.end) for lane in lanes)

    @staticmethod
    def _running_s() -> float:
        """A clock that stands still while the process, whose main thread queues the copies, waits for a processor."""
        return time.monotonic() - waited_s(os.getpid())

    def _watch(self) -> None:
        """Open a gate that is shut for longer than the patience."""
        while not self._closed.wait(self._patience_s / 4):
            with self._lock:
                if self._shut_at is not None and self._running_s() - self._shut_at > self._patience_s:
                    self._word.value, self._shut_at, self._late = OPEN, None, True
