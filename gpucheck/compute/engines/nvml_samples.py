"""Read one GPU while the process computes on it, in a thread."""

import threading
import time
from types import TracebackType

import msgspec

from gpucheck.host.nvml.gauge import Gauge
from gpucheck.model.compute import Sample

PAUSE_S = 0.1
MOST = 2000


class Readings:
    """A context manager around a step. Without a GPU, or without NVML, nothing is read."""

    def __init__(self, bus_id: str | None) -> None:
        self._gauge = Gauge.of(bus_id) if bus_id is not None else None
        self._samples: list[Sample] = []
        self._stop = threading.Event()

    def __enter__(self) -> None:
        self._samples, self._stop = [], threading.Event()
        if self._gauge is not None:
            threading.Thread(target=self._read, args=(self._gauge, self._samples, self._stop), daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()

    def samples(self) -> tuple[Sample, ...]:
        """Return what was read during the last step."""
        return tuple(self._samples)

    def errors(self) -> dict[str, int]:
        """Return the error counters that the GPU reports now."""
        return self._gauge.errors() if self._gauge is not None else {}

    def memory_limit_c(self) -> float | None:
        """Return the temperature of its memory at which the GPU slows down."""
        return self._gauge.memory_limit_c() if self._gauge is not None else None

    @staticmethod
    def _read(gauge: Gauge, samples: list[Sample], stop: threading.Event) -> None:
        began = time.monotonic()
        while not stop.wait(PAUSE_S) and len(samples) < MOST:
            sample = gauge.read()
            if not stop.is_set():  # a reading that ended after the load shows an idle GPU
                samples.append(msgspec.structs.replace(sample, at=round(time.monotonic() - began, 3)))
