"""The copy engine of torch on CUDA: copies as in a torch job, including the waits that torch adds.

``lanes`` describes how each method copies.
"""

import time
from collections.abc import Sequence
from typing import Any

from gpucheck.measure.engines.cuda.queue import Gate, Lane, timed
from gpucheck.measure.engines.numa import on_node
from gpucheck.measure.engines.pattern import MASK, SAMPLE, WORD, pattern_array, signed
from gpucheck.measure.engines.torch import lanes
from gpucheck.measure.engines.torch.lanes import Streams
from gpucheck.measure.engines.torch.runtime import TorchRuntime, error_code, library, ordinal
from gpucheck.measure.planning.selection import LEAST_BYTES
from gpucheck.measure.statistics import LATENCY_BYTES
from gpucheck.measure.values import HOST, Comparison, Flow, Opened, Region, Setup, TimingWay, Wrong

CHUNK_WORDS = 1 << 23
PINNED_BYTES = 64 << 20


class TorchEngine:
    """gpucheck.measure.engines.protocol.CopyEngine over torch.cuda."""

    way: TimingWay = "spin"

    def open(self, setup: Setup) -> Opened:
        """Find the devices by bus id, create contexts and buffers. Raises RuntimeError without CUDA, LookupError."""
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no CUDA device")
        self.runtime = runtime = library(torch)
        self.cuda = [torch.device("cuda", ordinal(torch, device, runtime)) for device in setup.devices]
        self.began = time.perf_counter()
        size, notes = self._allocate(setup.buffer_bytes)
        self.pinned = []
        for device in setup.devices:
            with on_node(device.numa_node):
                self.pinned.append(torch.empty(min(size, PINNED_BYTES) // WORD, dtype=torch.int64, pin_memory=True))
        self.gate = Gate(torch.cuda.Stream(self.cuda[0]))
        self.streams = Streams(torch)
        return Opened(
            buffer_bytes=size,
            methods=("ce-write", "sm-write", "staged"),
            clock="CUDA events (copies through host memory: host clock)",
            versions={"torch": str(torch.__version__), "cuda": torch.version.cuda},
            notes=notes,
        )

    def error_code(self, error: Exception) -> int | None:
        """Return the code of torch's exception."""
        return error_code(self.torch, self.runtime, error)

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Time all flows with one gate."""
        region = Region(offset=0, size=size)
        seconds = timed(TorchRuntime(self.torch), self.gate, self._lanes(flows, region), repeats)
        # A kernel copy omits the gaps between rows, so it moves slightly less than the requested size.
        part = lanes.ROW / lanes.BODY
        return tuple(s * part if f.method == "sm-write" else s for s, f in zip(seconds, flows, strict=True))

    def latency(self, flow: Flow, repeats: int) -> float:
        """Time consecutive small copies on one stream."""
        region = Region(offset=0, size=LATENCY_BYTES)
        return timed(TorchRuntime(self.torch), self.gate, self._lanes([flow], region), [repeats])[0] / repeats

    def fill(self, device: int, key: int, region: Region) -> None:
        """Compute the pattern on the device of the buffer."""
        part = _part(self.sources[device], region)
        for start in range(0, len(part), CHUNK_WORDS):
            chunk = part[start : start + CHUNK_WORDS]
            chunk.copy_(self._pattern(device, key, start, len(chunk)))
        self.torch.cuda.synchronize(self.cuda[device])

    def poison(self, device: int, value: int, region: Region) -> None:
        """Poison the buffer, then wait: no copy may start before that."""
        _part(self.destinations[device], region).fill_(signed(value))
        self.torch.cuda.synchronize(self.cuda[device])

    def copy(self, flows: Sequence[Flow], region: Region, bursts: int) -> None:
        """Queue everything, then wait for every device."""
        for flow, lane in zip(flows, self._lanes(flows, region), strict=True):
            for _ in range(bursts):
                lane.copy()
            if flow.method == "sm-write":
                self._gaps(flow, region)
        for device in self.cuda:
            self.torch.cuda.synchronize(device)

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Compare on the destination, in its own memory."""
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

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        """Return the words by a copy to the host."""
        buffers = self.sources if source else self.destinations
        return tuple(word & MASK for word in _part(buffers[device], region).cpu().tolist())

    def device_seconds(self) -> float:
        """Return the time by the host's clock, as every call waits for the devices."""
        return time.perf_counter() - self.began

    def close(self) -> None:
        """Do nothing: the process exits next, and the driver releases all resources."""

    def _allocate(self, wanted: int) -> tuple[int, tuple[str, ...]]:
        """Allocate two buffers on every device, smaller ones if memory is short. Raises RuntimeError if none fit."""
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
            note = f"buffers shrunk from {wanted >> 20} to {size >> 20} MiB: a GPU has too little free memory"
            return size, (note,) if size < wanted else ()

    def _pattern(self, device: int, key: int, start: int, words: int) -> Any:
        index = self.torch.arange(start, start + words, dtype=self.torch.int64, device=self.cuda[device])
        return pattern_array(index, key)

    def _ends(self, flow: Flow, region: Region) -> tuple[Any, Any]:
        if HOST not in (flow.src, flow.dst):
            return _part(self.sources[flow.src], region), _part(self.destinations[flow.dst], region)
        host = self.pinned[flow.dst if flow.src == HOST else flow.src][: region.size // WORD]
        if flow.src == HOST:
            return host, _part(self.destinations[flow.dst], region)[: len(host)]
        return _part(self.sources[flow.src], region)[: len(host)], host

    def _lanes(self, flows: Sequence[Flow], region: Region) -> list[Lane]:
        self.streams.begin()
        return [self._lane(flow, region) for flow in flows]

    def _lane(self, flow: Flow, region: Region) -> Lane:
        source, target = self._ends(flow, region)
        devices = [self.cuda[end] for end in (flow.src, flow.dst) if end != HOST]
        near, far = self.streams.take(devices[0]), self.streams.take(devices[-1])
        if flow.method == "staged":
            return lanes.staged(self.torch, source, target, near, far, self.streams.stages())
        if flow.method == "sm-write":
            source, target = (lanes.rows(part)[:, : lanes.BODY] for part in (source, target))
        return lanes.plain(self.torch, source, target, near, far)

    def _gaps(self, flow: Flow, region: Region) -> None:
        """Copy the words between the bodies of the rows, so that all data arrives."""
        source, target = (lanes.rows(part)[:, lanes.BODY :] for part in self._ends(flow, region))
        near, far = self.streams.take(self.cuda[flow.src]), self.streams.take(self.cuda[flow.dst])
        lanes.plain(self.torch, source, target, near, far).copy()


def _part(buffer: Any, region: Region) -> Any:
    return buffer[region.offset // WORD : (region.offset + region.size) // WORD]
