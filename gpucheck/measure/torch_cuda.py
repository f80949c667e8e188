"""The copy engine of torch on CUDA: what training jobs use, and therefore the default.

ce-write is ``dst.copy_(src)``: equal layouts make torch queue one driver copy on the source's stream, direct where peer
access is granted. sm-write copies rows that are not contiguous, which torch does by a kernel of the source.
ce-read is the runtime's cudaMemcpyPeerAsync on a stream of the destination; small copies for latency use it as well,
because torch's own waiting between the two devices' streams takes longer than they do.
"""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from gpucheck.measure.cuda_queue import Lane, timed
from gpucheck.measure.engine import CopyRefused
from gpucheck.measure.pattern import MASK, pattern_array, signed
from gpucheck.measure.values import HOST, Comparison, Device, Flow, Opened, Region, Setup, Wrong

WORD = 8
ROW, BODY = 128, 127  # words: rows with a gap after the body are what torch copies by a kernel
CHUNK_WORDS = 1 << 23
STAGE_BYTES = 4 << 20
PINNED_BYTES = 64 << 20
LEAST_BYTES = 4 << 20
SAMPLE = 64
LATENCY_BYTES = 16


class TorchEngine:
    """gpucheck.measure.engine.CopyEngine over torch.cuda."""

    def open(self, setup: Setup) -> Opened:
        """Find the devices by bus id, make contexts and buffers. Raises RuntimeError without CUDA, LookupError."""
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no CUDA device")
        self.cuda = [torch.device("cuda", _ordinal(torch, device)) for device in setup.devices]
        self.began = time.perf_counter()
        self.lanes: dict[tuple[Flow, int], _Streams] = {}
        size, notes = self._allocate(setup.buffer_bytes)
        self.pinned = torch.empty(min(size, PINNED_BYTES) // WORD, dtype=torch.int64, pin_memory=True)
        self.gate = torch.cuda.Stream(self.cuda[0])
        self.runtime = _runtime_library()
        methods: tuple[Any, ...] = ("ce-write", "sm-write", "staged")
        if self.runtime is not None:
            methods += ("ce-read",)
        return Opened(
            buffer_bytes=size,
            methods=methods,
            clock="CUDA events (copies through host memory: host clock)",
            versions={"torch": str(torch.__version__), "cuda": torch.version.cuda},
            notes=notes,
        )

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """All flows behind one gate."""
        region = Region(offset=0, size=size)
        lanes = [self._lane(flow, region, place) for place, flow in enumerate(flows)]
        seconds = timed(_TorchRuntime(self.torch), self.gate, lanes, repeats)
        # A kernel's row copy leaves the gaps out: what it moved is a little less than was asked for.
        return tuple(s * ROW / BODY if f.method == "sm-write" else s for s, f in zip(seconds, flows, strict=True))

    def latency(self, flow: Flow, repeats: int) -> float:
        """Small copies queued on one stream, which runs them one after the other."""
        region = Region(offset=0, size=LATENCY_BYTES)
        raw = self.runtime is not None and flow.method == "ce-write"
        lane = self._raw_lane(flow, region, flow.src) if raw else self._lane(flow, region, 0)
        return timed(_TorchRuntime(self.torch), self.gate, [lane], [repeats])[0] / repeats

    def fill(self, device: int, key: int, region: Region) -> None:
        """Computed where the buffer is."""
        part = _part(self.sources[device], region)
        for start in range(0, len(part), CHUNK_WORDS):
            chunk = part[start : start + CHUNK_WORDS]
            chunk.copy_(self._pattern(device, key, start, len(chunk)))
        self.torch.cuda.synchronize(self.cuda[device])

    def poison(self, device: int, value: int, region: Region) -> None:
        """The destination must be at rest before anyone writes to it."""
        _part(self.destinations[device], region).fill_(signed(value))
        self.torch.cuda.synchronize(self.cuda[device])

    def copy(self, flows: Sequence[Flow], region: Region, bursts: int) -> None:
        """Queue everything, then wait for every device."""
        for place, flow in enumerate(flows):
            lane = self._lane(flow, region, place)
            for _ in range(bursts):
                lane.copy()
            if flow.method == "sm-write":
                source, target = self._ends(flow, region)
                self._gaps(flow, source, target, place)
        for device in self.cuda:
            self.torch.cuda.synchronize(device)

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Computed on the destination, from its own memory."""
        part = _part(self.destinations[device], region)
        count, first, last = 0, None, None
        sample: list[Wrong] = []
        for start in range(0, len(part), CHUNK_WORDS):
            chunk = part[start : start + CHUNK_WORDS]
            wrong = (chunk != self._pattern(device, key, start, len(chunk))).nonzero().flatten()
            if not len(wrong):
                continue
            count += len(wrong)
            first = start + int(wrong[0]) if first is None else first
            last = start + int(wrong[-1])
            for index in wrong[:: max(1, len(wrong) // SAMPLE)][: SAMPLE - len(sample)].tolist():
                sample.append(Wrong(index=start + index, got=int(chunk[index]) & MASK))  # noqa: PERF401 - two statements
        return Comparison(words=len(part), mismatches=count, first=first, last=last, sample=tuple(sample))

    def words(self, device: int, region: Region) -> tuple[int, ...]:
        """Through a plain copy to the host."""
        return tuple(word & MASK for word in _part(self.destinations[device], region).cpu().tolist())

    def device_seconds(self) -> float:
        """The host's clock: every call waits for the devices."""
        return time.perf_counter() - self.began

    def close(self) -> None:
        """The process ends right after; the driver takes everything back."""

    def _allocate(self, wanted: int) -> tuple[int, tuple[str, ...]]:
        """Two buffers on every device, smaller ones where memory is short. Raises RuntimeError when none fit."""
        torch, size = self.torch, wanted
        while True:
            try:
                words = size // WORD
                self.sources = [torch.zeros(words, dtype=torch.int64, device=device) for device in self.cuda]
                self.destinations = [torch.zeros(words, dtype=torch.int64, device=device) for device in self.cuda]
            except torch.cuda.OutOfMemoryError:
                self.sources, self.destinations = [], []
                torch.cuda.empty_cache()
                if size // 2 < LEAST_BYTES:
                    raise
                size = size // 2 // LEAST_BYTES * LEAST_BYTES
                continue
            note = f"buffers shrunk from {wanted >> 20} to {size >> 20} MiB: a GPU had no room for more"
            return size, (note,) if size < wanted else ()

    def _pattern(self, device: int, key: int, start: int, words: int) -> Any:
        index = self.torch.arange(start, start + words, dtype=self.torch.int64, device=self.cuda[device])
        return pattern_array(index, key, lambda array, bits: (array >> bits) & ((1 << (64 - bits)) - 1))

    def _ends(self, flow: Flow, region: Region) -> tuple[Any, Any]:
        if HOST not in (flow.src, flow.dst):
            return _part(self.sources[flow.src], region), _part(self.destinations[flow.dst], region)
        host = self.pinned[: region.size // WORD]
        if flow.src == HOST:
            return host, _part(self.destinations[flow.dst], region)[: len(host)]
        return _part(self.sources[flow.src], region)[: len(host)], host

    def _streams(self, flow: Flow, place: int) -> "_Streams":
        """Streams of its own for every flow: a copy waits for whatever is queued on the streams it is started on."""
        if (flow, place) not in self.lanes:
            ends = [self.cuda[end] for end in (flow.src, flow.dst) if end != HOST]
            self.lanes[flow, place] = _Streams(self.torch.cuda.Stream(ends[0]), self.torch.cuda.Stream(ends[-1]))
        return self.lanes[flow, place]

    def _lane(self, flow: Flow, region: Region, place: int) -> Lane:
        if flow.method == "ce-read":
            return self._raw_lane(flow, region, flow.dst)
        streams = self._streams(flow, place)
        source, target = self._ends(flow, region)
        if flow.method == "staged":
            return self._staged_lane(source, target, streams)
        if flow.method == "sm-write":
            source, target = (_rows(part)[:, :BODY] for part in (source, target))
        torch = self.torch

        def copy() -> None:
            with torch.cuda.stream(streams.far), torch.cuda.stream(streams.near):
                target.copy_(source, non_blocking=True)

        return Lane(streams.near, streams.near, copy)

    def _gaps(self, flow: Flow, source: Any, target: Any, place: int) -> None:
        """The words between the rows' bodies, so that everything arrives."""
        streams = self._streams(flow, place)
        with self.torch.cuda.stream(streams.far), self.torch.cuda.stream(streams.near):
            _rows(target)[:, BODY:].copy_(_rows(source)[:, BODY:], non_blocking=True)

    def _staged_lane(self, source: Any, target: Any, streams: "_Streams") -> Lane:
        """Chunks through two pinned buffers: the second leg of one while the first leg of the next."""
        torch, words = self.torch, STAGE_BYTES // WORD
        buffers = streams.buffers or [torch.empty(words, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        streams.buffers = buffers
        free = [torch.cuda.Event() for _ in buffers]
        full = [torch.cuda.Event() for _ in buffers]

        def copy() -> None:
            for number, start in enumerate(range(0, len(source), words)):
                side, count = number % 2, min(words, len(source) - start)
                stage = buffers[side][:count]
                with torch.cuda.stream(streams.near):
                    streams.near.wait_event(free[side])
                    stage.copy_(source[start : start + count], non_blocking=True)
                    full[side].record(streams.near)
                with torch.cuda.stream(streams.far):
                    streams.far.wait_event(full[side])
                    target[start : start + count].copy_(stage, non_blocking=True)
                    free[side].record(streams.far)

        return Lane(streams.near, streams.far, copy)

    def _raw_lane(self, flow: Flow, region: Region, runner: int) -> Lane:
        """One cudaMemcpyPeerAsync on a stream of the device that runs it."""
        source, target = self._ends(flow, region)
        stream = self._streams(flow, 0).near if runner == flow.src else self._streams(flow, 0).far
        ends = self.cuda[flow.dst].index, self.cuda[flow.src].index
        call, torch, device = self.runtime, self.torch, self.cuda[runner]
        assert call is not None  # noqa: S101 - the method is offered only with it

        def copy() -> None:
            with torch.cuda.device(device):
                status = call(target.data_ptr(), ends[0], source.data_ptr(), ends[1], region.size, stream.cuda_stream)
            if status:
                raise CopyRefused(flow, f"CUDA error {status} from cudaMemcpyPeerAsync")

        return Lane(stream, stream, copy)


class _Streams:
    """A flow's two streams: near, where its copies run, and far, for the other end's part of it."""

    def __init__(self, near: Any, far: Any) -> None:
        self.near = near
        self.far = far
        self.buffers: list[Any] = []


class _TorchRuntime:
    """gpucheck.measure.cuda_queue.Runtime."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def event(self, stream: Any) -> Any:  # noqa: ARG002 - torch makes it on the device that records it first
        return self.torch.cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def done(self, event: Any) -> bool:
        return bool(event.query())

    def synchronize(self, event: Any) -> None:
        event.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def hold(self, stream: Any, cycles: int) -> None:
        with self.torch.cuda.stream(stream):
            self.torch.cuda._sleep(cycles)


def _part(buffer: Any, region: Region) -> Any:
    return buffer[region.offset // WORD : (region.offset + region.size) // WORD]


def _rows(part: Any) -> Any:
    return part[: len(part) // ROW * ROW].view(-1, ROW)


def _ordinal(torch: Any, device: Device) -> int:
    """The CUDA device with this bus id. Raises LookupError where this process is not shown it."""
    for ordinal in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(ordinal)
        domain, bus = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_bus_id", None)
        if bus is not None and f"{domain:04x}:{bus:02x}:{properties.pci_device_id:02x}.0" == device.bus_id:
            return ordinal
        if device.uuid and f"GPU-{getattr(properties, 'uuid', '')}" == device.uuid:
            return ordinal
    raise LookupError(
        f"GPU {device.index} ({device.bus_id}) is not among the {torch.cuda.device_count()} that torch sees. Unset "
        "CUDA_VISIBLE_DEVICES, or leave the GPU out with --devices"
    )


def _runtime_library() -> Any:
    """cudaMemcpyPeerAsync of the CUDA runtime that torch has loaded, None where it cannot be found by name."""
    import torch

    major = (torch.version.cuda or "").partition(".")[0]
    try:
        call = ctypes.CDLL(f"libcudart.so.{major}").cudaMemcpyPeerAsync
    except (OSError, AttributeError):
        return None
    call.argtypes = (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    call.restype = ctypes.c_int
    return call
