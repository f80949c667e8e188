"""Time queued copies: all streams wait for one word of pinned host memory, so that all copies start together.

This needs no spinning kernel and no estimate of clock cycles: the host writes the word after everything is queued. A
full launch queue blocks the host before that; then a timer writes the word, and the sample is discarded.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpucheck.measure.engines.driver.calls import Calls
from gpucheck.measure.engines.driver.gpu import Gpu, Line
from gpucheck.measure.engines.protocol import NotTimed

PATIENCE_S = 1.0  # queueing the most copies of a step takes a few ms
SHUT, OPEN = 0, 1


class Lane(NamedTuple):
    """One flow of a step. gpu: its GPU. line: its stream, used by no other lane. queue: queues one copy."""

    gpu: Gpu
    line: Line
    queue: Callable[[], None]


class Gate:
    """The word that streams wait for, and the timing of their copies."""

    def __init__(self, calls: Calls, patience_s: float = PATIENCE_S) -> None:
        names = calls.names
        self._calls, self._patience_s = calls, patience_s
        address = calls("cuMemHostAlloc", 64, names.CU_MEMHOSTALLOC_PORTABLE | names.CU_MEMHOSTALLOC_DEVICEMAP)
        self._word = ctypes.c_uint32.from_address(int(address))
        self._address = int(calls("cuMemHostGetDevicePointer", address, 0))

    def timed(self, lanes: Sequence[Lane], counts: Sequence[int]) -> tuple[float, ...]:
        """Return seconds of each lane, by CUDA events of its own GPU. Raises NotTimed, CudaError."""
        calls = self._calls
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._word.value = OPEN

        self._word.value = SHUT
        timer = threading.Timer(self._patience_s, give_up)
        timer.daemon = True
        timer.start()
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
            timer.cancel()
            self._word.value = OPEN  # also after an error, so that no stream waits
        for lane in lanes:
            calls("cuEventSynchronize", lane.line.end)
        if late.is_set():
            copies = sum(counts)
            raise NotTimed(f"the launch queue did not take {copies} {'copy' if copies == 1 else 'copies'} immediately")
        return tuple(calls.seconds(lane.line.start, lane.line.end) for lane in lanes)
