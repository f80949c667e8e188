"""The copy engine on the CUDA driver API, which measures by default. Each method is one call or one kernel.

ce-write, ce-read: cuMemcpyPeerAsync on a stream of the source or destination, with bidirectional peer access.
sm-write, sm-read: the kernel ``copy`` on the source or destination, 16 bytes a thread.
staged: cuMemcpyPeerAsync without peer access in either direction: the driver copies through host memory.
fabric: the source writes to memory of the destination that it imported by a fabric handle, and reads it back.

All streams wait for one word of pinned host memory, the gate, so that all copies start together. This needs no spinning
kernel and no estimate of clock cycles: the host writes the word after everything is queued. A full launch queue blocks
the host before that; then a second thread writes the word, and the sample is discarded. One thread serves all samples:
starting one for each took longer than queueing the copies. Where the driver rejects such a wait, as it may with
confidential computing, a kernel that spins for a time takes its place. Copies that block the host behind either of them
are timed by events alone.
"""

import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import NamedTuple

from gpucheck.host.simulated import preload
from gpucheck.measure.engines.driver.calls import Calls, CudaError, MissingCall, missing, not_opened
from gpucheck.measure.engines.driver.gpu import (
    HOST_PIECE,
    HOST_PIECES,
    NOTE_WORDS,
    CudaGpu,
    Line,
    Peers,
    imported,
    nodes,
)
from gpucheck.measure.engines.pattern import MASK, WORD
from gpucheck.measure.planning.selection import LEAST_BYTES
from gpucheck.measure.values import (
    LATENCY_BYTES,
    MIB,
    OUT_OF_MEMORY,
    Comparison,
    NotTimed,
    Opened,
    Region,
    Setup,
    TimingWay,
    Wrong,
)
from gpucheck.model.copies import HOST, Flow
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


def timed_by_events(calls: Calls, lanes: Sequence[Lane], counts: Sequence[int]) -> tuple[float, ...]:
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


PIECE = 16  # bytes that a thread of the kernel "copy" moves at a time
LINK_STRIDE, LINKS = 256, 4096  # of the pointer chain: 1 MiB, so that loads use the link and not page tables
LEAST_UNGATED = 64 * MIB  # bytes: what queueing costs is below a hundredth of the time of such a copy at 50 GB/s
LOADS = 5  # for each repetition of a latency: the launch of the kernel is then a small part


class DriverEngine:
    """gpucheck.measure.values.CopyEngine over cuda.bindings.driver."""

    way: TimingWay = "gate"

    def open(self, setup: Setup) -> Opened:
        """Make contexts and buffers. Raises ModuleNotFoundError, NotOpened."""
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        from cuda import bindings

        preload("libcuda.so.1")
        self.calls = calls = Calls()
        self.busy, version = 0.0, None
        self._blocking: frozenset[str] = frozenset()  # kinds of copies that block the host while the gate is shut
        try:
            calls("cuInit", 0)
            number = calls("cuDriverGetVersion")
            version = f"{number // 1000}.{number % 1000 // 10}"
            self.gpus = [CudaGpu(calls, device) for device in setup.devices]
            size, notes = self._allocate(setup.buffer_bytes)
            self.peers = Peers(calls, self.gpus)
            self._shut()
        except CudaError as error:
            raise not_opened(error, "") from error
        except MissingCall as error:
            raise missing(error, version, bindings.__version__) from error
        places = range(len(self.gpus))
        return Opened(
            buffer_bytes=size,
            methods=("ce-write", "ce-read", "sm-write", "sm-read", "staged", "fabric"),
            clock="CUDA events of the GPU that runs the copy",
            versions={"cuda driver": version, "cuda-bindings": bindings.__version__},
            notes=notes,
            peer_access=tuple(tuple((a, b) in self.peers.offered if a != b else None for b in places) for a in places),
            numa_nodes=nodes(),
            fabric_handles=tuple(gpu.fabric_handles for gpu in self.gpus),
        )

    def error_code(self, error: Exception) -> int | None:
        return error.code if isinstance(error, CudaError) else None

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Time all flows with one gate. One copy that blocks the host behind it is timed without, from 64 MiB on."""
        lanes, kinds = self._lanes(flows, Region(offset=0, size=size)), frozenset(map(self._kind, flows))
        if not kinds <= self._blocking:
            try:
                return self._timed(lanes, repeats)
            except NotTimed:
                if max(repeats) > 1 or size < LEAST_UNGATED:
                    raise
                self._blocking |= kinds
        return self._timed(lanes, repeats, ungated=True)

    def latency(self, flow: Flow, repeats: int) -> float:
        """Time consecutive small copies on one stream. sm-read: loads of a kernel instead."""
        if flow.method != "sm-read":
            lanes = self._lanes([flow], Region(offset=0, size=LATENCY_BYTES))
            return self._timed(lanes, [repeats], ungated=self._kind(flow) in self._blocking)[0] / repeats
        reader, owner, loads = self.gpus[flow.dst], self.gpus[flow.src], repeats * LOADS
        self._allow([flow])
        owner.launch("chain", LINKS, owner.source, LINK_STRIDE, LINKS)
        owner.wait()
        line = reader.line(0)
        chase = partial(reader.launch, "chase", 1, owner.source, loads, reader.note, line=line)
        return self._timed([Lane(reader, line, chase)], [1])[0] / loads

    def fill(self, device: int, key: int, region: Region) -> None:
        """Compute the pattern on the device of the buffer."""
        gpu, words = self.gpus[device], region.size // WORD
        self._run([Lane(gpu, gpu.line(), partial(gpu.launch, "fill", words, gpu.source + region.offset, key, words))])

    def poison(self, device: int, value: int, region: Region) -> None:
        """Poison the buffer, then wait: no copy may start before that."""
        gpu, words = self.gpus[device], region.size // WORD
        poison = partial(gpu.launch, "poison", words, gpu.target + region.offset, value, words)
        self._run([Lane(gpu, gpu.line(), poison)])

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Queue everything, then wait for every device. By fabric handles one flow after the other."""
        for flow in flows if flows[0].method == "fabric" else ():
            self._copy_by_handle(flow, region)
        if flows[0].method != "fabric":
            self._run(self._lanes(flows, region))

    def _copy_by_handle(self, flow: Flow, region: Region) -> None:
        src, dst = self.gpus[flow.src], self.gpus[flow.dst]
        self._allow([flow])
        with imported(self.calls, dst, src, region.size) as shared:
            line, ends = src.line(), ((shared, src.source + region.offset), (dst.target + region.offset, shared))

            def there_and_back() -> None:
                for end in ends:
                    self.calls("cuMemcpyAsync", *end, region.size, line.stream)

            self._run([Lane(src, line, there_and_back)])

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Compare on the destination, in its own memory."""
        gpu, words = self.gpus[device], region.size // WORD
        gpu.write(gpu.note, [0, MASK, 0])
        arguments = (gpu.target + region.offset, key, words, gpu.note, (NOTE_WORDS - 3) // 2)
        self._run([Lane(gpu, gpu.line(), partial(gpu.launch, "compare", words, *arguments))])
        count, first, last, *found = gpu.read(gpu.note, NOTE_WORDS)
        wrong = sorted(zip(found[: 2 * count : 2], found[1 : 2 * count : 2], strict=True))
        return Comparison(
            words=words,
            mismatches=count,
            first=first if count else None,
            last=last if count else None,
            sample=tuple(Wrong(index=index, got=got) for index, got in wrong),
        )

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        gpu = self.gpus[device]
        return tuple(gpu.read((gpu.source if source else gpu.target) + region.offset, region.size // WORD))

    def device_seconds(self) -> float:
        """Return the time by CUDA events, of simultaneous lanes the longest."""
        return self.busy

    def close(self) -> None:
        """End the thread of the gate. The process exits next, and the driver releases all resources."""
        if hasattr(self, "gate"):
            self.gate.close()

    def _allocate(self, wanted: int) -> tuple[int, tuple[str, ...]]:
        size = wanted
        while True:
            try:
                for gpu in self.gpus:
                    gpu.allocate(size)
            except CudaError as error:
                if error.code != OUT_OF_MEMORY or size // 2 < LEAST_BYTES:
                    raise
                for gpu in self.gpus:
                    gpu.release()
                size = size // 2 // LEAST_BYTES * LEAST_BYTES
                continue
            note = f"buffers shrunk from {wanted >> 20} to {size >> 20} MiB: a GPU has too little free memory"
            return size, (note,) if size < wanted else ()

    def _shut(self) -> None:
        """Make the gate, and try it: a call that the driver lacks or rejects fails here, not during a copy."""
        lanes, none = [Lane(gpu, gpu.line(), _nothing) for gpu in self.gpus], [0] * len(self.gpus)
        try:
            self.gate: Gate | SpinGate = Gate(self.calls)
            with suppress(NotTimed):
                self.gate.timed(lanes, none)
        except CudaError as error:
            if error.call not in ("cuMemHostGetDevicePointer", "cuStreamWaitValue32"):
                raise
            self.gate.close()
            self.gate = SpinGate(self.calls)
            with suppress(NotTimed):
                self.gate.timed(lanes, none)

    def _kind(self, flow: Flow) -> str:
        """Return the kind of a flow: copies of one kind block the host or do not, whichever GPUs they are between."""
        peers = HOST not in (flow.src, flow.dst) and flow.src != flow.dst
        return "staged" if peers and (flow.src, flow.dst) not in self.peers.enabled else flow.method

    def _timed(self, lanes: Sequence[Lane], counts: Sequence[int], *, ungated: bool = False) -> tuple[float, ...]:
        self.way = "events" if ungated else "gate" if isinstance(self.gate, Gate) else "spin"
        seconds = timed_by_events(self.calls, lanes, counts) if ungated else self.gate.timed(lanes, counts)
        self.busy += max(seconds)
        return seconds

    def _run(self, lanes: Sequence[Lane]) -> None:
        self.busy += max(timed_by_events(self.calls, lanes, [1] * len(lanes)))

    def _allow(self, flows: Sequence[Flow]) -> None:
        """Enable peer access for exactly the pairs of these flows that copy directly.

        Raises ValueError for a kernel without access to the memory, which would end the context with error 700.
        """
        between = [f for f in flows if f.src != f.dst and HOST not in (f.src, f.dst)]
        for flow in between:
            way = (flow.dst, flow.src) if flow.method == "sm-read" else (flow.src, flow.dst)
            if flow.method.startswith("sm-") and way not in self.peers.offered:
                raise ValueError(f"{flow.method} from {flow.src} to {flow.dst} without peer access")
        self.peers.only((flow.src, flow.dst) for flow in between if flow.method != "staged")

    def _lanes(self, flows: Sequence[Flow], region: Region) -> list[Lane]:
        self._allow(flows)
        taken: Counter[int] = Counter()
        lanes = []
        for flow in flows:
            place = flow.dst if flow.src == HOST or (flow.method.endswith("-read") and flow.dst != HOST) else flow.src
            line = self.gpus[place].line(taken[place])
            taken[place] += 1
            lanes.append(self._lane(flow, region, Lane(self.gpus[place], line, _nothing)))
        return lanes

    def _lane(self, flow: Flow, region: Region, lane: Lane) -> Lane:
        stream, offset, size = lane.line.stream, region.offset, region.size
        if HOST in (flow.src, flow.dst):
            pinned = lane.gpu.pinned(flow.node, HOST_PIECES * HOST_PIECE, read=flow.src == HOST)
            if flow.method in ("sm-read", "sm-write"):
                parts = size // PIECE  # a step of host copies is no larger than the pinned memory
                near = (lane.gpu.target + offset, pinned) if flow.src == HOST else (pinned, lane.gpu.source + offset)
                return lane._replace(queue=partial(lane.gpu.launch, "copy", parts, *near, parts, line=lane.line))
            pieces_in_turn = cycle(range(pinned, pinned + HOST_PIECES * HOST_PIECE, HOST_PIECE))

            def host() -> None:
                for done in range(0, size, HOST_PIECE):
                    part, piece = min(HOST_PIECE, size - done), next(pieces_in_turn)
                    if flow.src == HOST:
                        self.calls("cuMemcpyHtoDAsync", lane.gpu.target + offset + done, piece, part, stream)
                    else:
                        self.calls("cuMemcpyDtoHAsync", piece, lane.gpu.source + offset + done, part, stream)

            return lane._replace(queue=host)
        src, dst = self.gpus[flow.src], self.gpus[flow.dst]
        target, source = dst.target + offset, src.source + offset
        if flow.method in ("sm-write", "sm-read"):
            pieces = size // PIECE
            return lane._replace(queue=partial(lane.gpu.launch, "copy", pieces, target, source, pieces, line=lane.line))
        ends = (target, dst.context, source, src.context)
        return lane._replace(queue=partial(self.calls, "cuMemcpyPeerAsync", *ends, size, stream))


def _nothing() -> None: ...
