"""The copy engine of CuPy on CUDA: a second opinion that shares nothing with torch but the driver.

Copies are the runtime's memcpyPeerAsync, as in ``cupy.copyto`` between devices, on a stream of the source (ce-write)
or of the destination (ce-read). Peer access is switched on explicitly, as CuPy does on its first copy between devices.
"""

import time
from collections.abc import Sequence
from typing import Any

from gpucheck.measure.engines import arrays
from gpucheck.measure.engines.cuda.queue import Gate, Lane, timed
from gpucheck.measure.engines.pattern import MASK, WORD, signed
from gpucheck.measure.statistics import LATENCY_BYTES
from gpucheck.measure.values import HOST, Comparison, Device, Flow, Opened, Region, Setup

PEER_ALREADY_ENABLED = 704
HOLD = 'extern "C" __global__ void hold(long long n) { long long t = clock64(); while (clock64() - t < n) {} }'


class CupyEngine:
    """gpucheck.measure.engines.protocol.CopyEngine over CuPy."""

    def open(self, setup: Setup) -> Opened:
        """Find the devices by bus id, allow peer access, make buffers. Raises LookupError, RuntimeError."""
        import cupy

        self.cupy = cupy
        self.ordinals = [_ordinal(cupy, device) for device in setup.devices]
        self.began = time.perf_counter()
        self.streams: dict[tuple[Flow, int], Any] = {}
        words = setup.buffer_bytes // WORD
        self.sources, self.destinations = [], []
        for ordinal in self.ordinals:
            with cupy.cuda.Device(ordinal):
                self.sources.append(cupy.zeros(words, dtype=cupy.int64))
                self.destinations.append(cupy.zeros(words, dtype=cupy.int64))
        self._allow_peers()
        self.pinned = cupy.cuda.alloc_pinned_memory(setup.buffer_bytes)
        with cupy.cuda.Device(self.ordinals[0]):
            self.gate = Gate(cupy.cuda.Stream(non_blocking=True))
            self.hold = cupy.RawKernel(HOLD, "hold")
        version = cupy.cuda.runtime.runtimeGetVersion()
        return Opened(
            buffer_bytes=setup.buffer_bytes,
            methods=("ce-write", "ce-read"),
            clock="CUDA events",
            versions={"cupy": cupy.__version__, "cuda": f"{version // 1000}.{version % 1000 // 10}"},
        )

    def error_code(self, error: Exception) -> int | None:
        """Of runtime and driver calls; the compiler's status numbers are others."""
        cuda = self.cupy.cuda
        if isinstance(error, (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)):
            return int(error.status)
        return None

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """All flows behind one gate."""
        region = Region(offset=0, size=size)
        lanes = [self._lane(flow, region, place) for place, flow in enumerate(flows)]
        return timed(_CupyRuntime(self), self.gate, lanes, repeats)

    def latency(self, flow: Flow, repeats: int) -> float:
        """Small copies queued on one stream."""
        lane = self._lane(flow, Region(offset=0, size=LATENCY_BYTES), 0)
        return timed(_CupyRuntime(self), self.gate, [lane], [repeats])[0] / repeats

    def fill(self, device: int, key: int, region: Region) -> None:
        """Computed where the buffer is."""
        with self.cupy.cuda.Device(self.ordinals[device]) as current:
            _part(self.sources[device], region)[:] = arrays.pattern(self.cupy, key, region.size // WORD)
            current.synchronize()

    def poison(self, device: int, value: int, region: Region) -> None:
        """The destination must be at rest before anyone writes to it."""
        with self.cupy.cuda.Device(self.ordinals[device]) as current:
            _part(self.destinations[device], region)[:] = signed(value)
            current.synchronize()

    def copy(self, flows: Sequence[Flow], region: Region, bursts: int) -> None:
        """Queue everything, then wait for every device."""
        for place, flow in enumerate(flows):
            lane = self._lane(flow, region, place)
            for _ in range(bursts):
                lane.copy()
        for ordinal in self.ordinals:
            self.cupy.cuda.Device(ordinal).synchronize()

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Computed on the destination, from its own memory."""
        with self.cupy.cuda.Device(self.ordinals[device]):
            return arrays.compare(self.cupy, _part(self.destinations[device], region), key)

    def words(self, device: int, region: Region) -> tuple[int, ...]:
        """Through a plain copy to the host."""
        with self.cupy.cuda.Device(self.ordinals[device]):
            return tuple(word & MASK for word in _part(self.destinations[device], region).get().tolist())

    def device_seconds(self) -> float:
        """The host's clock: every call waits for the devices."""
        return time.perf_counter() - self.began

    def close(self) -> None:
        """The process ends right after; the driver takes everything back."""

    def _allow_peers(self) -> None:
        runtime = self.cupy.cuda.runtime
        for a in self.ordinals:
            for b in self.ordinals:
                if a != b and runtime.deviceCanAccessPeer(a, b):
                    with self.cupy.cuda.Device(a):
                        try:
                            runtime.deviceEnablePeerAccess(b)
                        except runtime.CUDARuntimeError as error:
                            if error.status != PEER_ALREADY_ENABLED:
                                raise

    def _lane(self, flow: Flow, region: Region, place: int) -> Lane:
        runtime = self.cupy.cuda.runtime
        runner = flow.dst if flow.src == HOST or (flow.method == "ce-read" and flow.dst != HOST) else flow.src
        if (flow, place) not in self.streams:
            with self.cupy.cuda.Device(self.ordinals[runner]):
                self.streams[flow, place] = self.cupy.cuda.Stream(non_blocking=True)
        stream = self.streams[flow, place]
        if HOST in (flow.src, flow.dst):
            buffer = self.destinations[flow.dst] if flow.src == HOST else self.sources[flow.src]
            ends = (buffer.data.ptr, self.pinned.ptr) if flow.src == HOST else (self.pinned.ptr, buffer.data.ptr)
            kind = runtime.memcpyHostToDevice if flow.src == HOST else runtime.memcpyDeviceToHost

            def copy() -> None:
                with self.cupy.cuda.Device(self.ordinals[runner]):
                    runtime.memcpyAsync(*ends, region.size, kind, stream.ptr)

            return Lane(stream, stream, copy)
        source = self.sources[flow.src].data.ptr + region.offset
        target = self.destinations[flow.dst].data.ptr + region.offset
        src, dst = self.ordinals[flow.src], self.ordinals[flow.dst]

        def peer() -> None:
            with self.cupy.cuda.Device(self.ordinals[runner]):
                runtime.memcpyPeerAsync(target, dst, source, src, region.size, stream.ptr)

        return Lane(stream, stream, peer)


class _CupyRuntime:
    """gpucheck.measure.engines.cuda.queue.Runtime."""

    def __init__(self, engine: CupyEngine) -> None:
        self.engine = engine
        self.cupy = engine.cupy

    def event(self, stream: Any) -> Any:
        # An event belongs to the device that is current when it is made.
        with self.cupy.cuda.Device(stream.device_id):
            return self.cupy.cuda.Event()

    def record(self, event: Any, stream: Any) -> None:
        with self.cupy.cuda.Device(stream.device_id):
            event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def done(self, event: Any) -> bool:
        return bool(event.done)

    def synchronize(self, event: Any) -> None:
        event.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        return float(self.cupy.cuda.get_elapsed_time(start, end)) / 1e3

    def hold(self, stream: Any, cycles: int) -> None:
        with self.cupy.cuda.Device(stream.device_id), stream:
            self.engine.hold((1,), (1,), (self.cupy.int64(cycles),))


def _part(buffer: Any, region: Region) -> Any:
    return buffer[region.offset // WORD : (region.offset + region.size) // WORD]


def _ordinal(cupy: Any, device: Device) -> int:
    """The CUDA device with this bus id. Raises LookupError where this process is not shown it."""
    count = cupy.cuda.runtime.getDeviceCount()
    for ordinal in range(count):
        if cupy.cuda.runtime.deviceGetPCIBusId(ordinal).lower() == (device.bus_id or ""):
            return ordinal
    raise LookupError(
        f"GPU {device.index} ({device.bus_id}) is not among the {count} that CuPy sees. Unset CUDA_VISIBLE_DEVICES, or "
        "leave the GPU out with --devices"
    )
