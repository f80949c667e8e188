"""The copy engine between CPU processes: each device is a process with two buffers shared by all processes.

The same steps, timing, statistics and integrity as on GPUs, on any host. Its results are memory bandwidth between
processes and are never evaluated like those of GPUs. The process of the source copies, like the copy engine of a GPU.
"""

import mmap
import os
import time
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

from gpucheck.measure.engines.pattern import MASK, SAMPLE, WORD, pattern_array, signed
from gpucheck.measure.values import Comparison, Opened, Region, Setup, TimingWay, Wrong
from gpucheck.model.copies import HOST, Flow
from gpucheck.processes.lifeline import end_with_parent

STAGE = 1 << 20
START_S = 0.0005


class CpuEngine:
    """gpucheck.measure.values.CopyEngine over processes and shared memory."""

    way: TimingWay = "gate"

    def open(self, setup: Setup) -> Opened:
        """Map the buffers and start the processes. Raises ModuleNotFoundError without NumPy."""
        import numpy

        self.size = setup.buffer_bytes
        self.busy = 0.0
        # The process that opens an engine has no threads, and only forked children inherit anonymous maps.
        context = get_context("fork")
        count = len(setup.devices)
        # Anonymous and shared: unlike /dev/shm it is not limited to the 64 MiB that containers get.
        self.maps = [mmap.mmap(-1, 2 * self.size) for _ in range(count)]
        self.workers = []
        for position in range(count):
            parent_end, child_end = context.Pipe()
            process = context.Process(
                target=_work, args=(position, self.maps, self.size, child_end, os.getpid()), daemon=True
            )
            process.start()
            child_end.close()
            self.workers.append((process, parent_end))
        return Opened(
            buffer_bytes=self.size,
            methods=("ce-write", "staged"),
            clock="monotonic clock of the copying process",
            versions={"numpy": numpy.__version__},
        )

    def error_code(self, error: Exception) -> int | None:  # noqa: ARG002 - no CUDA here
        """Return None: CPU processes do not use CUDA."""
        return None

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Start the process of every source at the same time of their shared clock."""
        begin = time.monotonic() + START_S
        region = Region(offset=0, size=size)
        orders = [("copy", flow, region, count, begin) for flow, count in zip(flows, repeats, strict=True)]
        seconds = self._all([(self._copier(flow), order) for flow, order in zip(flows, orders, strict=True)])
        self.busy += max(seconds)
        return tuple(seconds)

    def latency(self, flow: Flow, repeats: int) -> float:
        """Time consecutive small copies."""
        seconds = self._request(self._copier(flow), ("copy", flow, Region(offset=0, size=16), repeats, 0.0))
        return float(seconds) / repeats

    def fill(self, device: int, key: int, region: Region) -> None:
        """Run in the process that owns the buffer."""
        self._request(device, ("fill", key, region))

    def poison(self, device: int, value: int, region: Region) -> None:
        """Run in the process that owns the buffer."""
        self._request(device, ("poison", value, region))

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Copy all flows simultaneously; a process with several flows copies them one after the other."""
        self._all([(self._copier(flow), ("copy", flow, region, 1, 0.0)) for flow in flows])

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Run in the process that owns the buffer."""
        answer: Comparison = self._request(device, ("compare", key, region))
        return answer

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        start = (0 if source else self.size) + region.offset
        view = memoryview(self.maps[device])[start : start + region.size].cast("q")
        return tuple(word & MASK for word in view)

    def device_seconds(self) -> float:
        return self.busy

    def close(self) -> None:
        for process, pipe in self.workers:
            pipe.close()
            process.kill()
            process.join(1.0)

    def _copier(self, flow: Flow) -> int:
        return flow.dst if flow.src == HOST else flow.src

    def _request(self, device: int, order: tuple[Any, ...]) -> Any:
        return self._all([(device, order)])[0]

    def _all(self, orders: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        """Send every order, then receive the results in this order. Raises exceptions of the processes, EOFError."""
        for device, order in orders:
            self.workers[device][1].send(order)
        answers = [self.workers[device][1].recv() for device, _ in orders]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


class _Device:
    """One device in its process: owner of maps[position], whose first half is the source and second the destination."""

    def __init__(self, position: int, maps: Sequence[mmap.mmap], size: int) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        import numpy

        self.numpy, self.position, self.size = numpy, position, size
        self.buffers = [numpy.frombuffer(m, dtype=numpy.int64) for m in maps]
        self.scratch = numpy.zeros(size // WORD, dtype=numpy.int64)

    def copy(self, flow: Flow, region: Region, count: int, begin: float) -> float:
        host = self.scratch[: region.size // WORD]
        source = host if flow.src == HOST else self._part(flow.src, region, destination=False)
        target = host if flow.dst == HOST else self._part(flow.dst, region, destination=True)
        through = self.scratch[: min(STAGE, region.size) // WORD]
        while time.monotonic() < begin:
            pass
        start = time.perf_counter()
        for _ in range(count):
            if flow.method != "staged":
                target[:] = source
                continue
            for first in range(0, len(source), len(through)):
                part = source[first : first + len(through)]
                through[: len(part)] = part
                target[first : first + len(part)] = through[: len(part)]
        return time.perf_counter() - start

    def fill(self, key: int, region: Region) -> None:
        self._part(self.position, region, destination=False)[:] = self._pattern(key, region)

    def poison(self, value: int, region: Region) -> None:
        self._part(self.position, region, destination=True)[:] = signed(value)

    def compare(self, key: int, region: Region) -> Comparison:
        array = self._part(self.position, region, destination=True)
        wrong = (array != self._pattern(key, region)).nonzero()[0]
        count = len(wrong)
        if not count:
            return Comparison(words=len(array), mismatches=0)
        some = [int(i) for i in wrong[:: max(1, count // SAMPLE)][:SAMPLE]]
        sample = tuple(Wrong(index=i, got=int(array[i]) & MASK) for i in some)
        return Comparison(words=len(array), mismatches=count, first=int(wrong[0]), last=int(wrong[-1]), sample=sample)

    def _part(self, device: int, region: Region, *, destination: bool) -> Any:
        start = (self.size if destination else 0) + region.offset
        return self.buffers[device][start // WORD : (start + region.size) // WORD]

    def _pattern(self, key: int, region: Region) -> Any:
        return pattern_array(self.numpy.arange(region.size // WORD), key)


def _work(position: int, maps: Sequence[mmap.mmap], size: int, pipe: Any, parent_pid: int) -> None:
    """Run the actions of a device until the pipe closes."""
    end_with_parent(parent_pid)
    device = _Device(position, maps, size)
    try:
        while True:
            name, *arguments = pipe.recv()
            try:
                done = getattr(device, name)(*arguments)
            except Exception as error:
                done = error
            pipe.send(done)
    except EOFError:
        return
