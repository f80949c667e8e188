"""What all engines share: the steps, their timing and repeats. An engine multiplies, moves memory and digests."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from gpucheck.compute.values import Answer, ComputeStep, Opened, Setup
from gpucheck.host.nvml.gauge import Gauge
from gpucheck.model.compute import TYPES, Sample

READ_PAUSE_S = 0.1
MOST = 2000


@contextmanager
def read_meanwhile(gauge: Gauge | None) -> Iterator[list[Sample]]:
    """Yield what is read of the GPU until the end. Without a GPU, or without NVML, nothing is read."""
    samples: list[Sample] = []
    ended, began = threading.Event(), time.monotonic()

    def read(gauge: Gauge) -> None:
        while not ended.wait(READ_PAUSE_S) and len(samples) < MOST:
            sample = gauge.read()
            if not ended.is_set():  # a reading that ended after the load shows an idle GPU
                samples.append(replace(sample, at=round(time.monotonic() - began, 3)))

    if gauge is not None:
        threading.Thread(target=read, args=(gauge,), daemon=True).start()
    try:
        yield samples
    finally:
        ended.set()


# Sizes on a GPU and on a CPU. A square product; the chain that is repeated, rows x depth by depth x depth.
SIDE, DEPTH = 8192, 1024
SMALL_SIDE, SMALL_ROWS, SMALL_DEPTH = 256, 256, 64
MEMORY_BYTES, SMALL_MEMORY_BYTES = 1 << 30, 16 << 20  # larger than any cache
LINKS = 4  # products of one chain
LEAST_SAMPLES, SAMPLE_S, WARM_UP_S = 7, 0.02, 0.3
PAUSE_S = 0.05  # of the phase with pauses: longer than a power supply smooths
# CUdevice_attribute: memory clock in kHz, width of the memory bus in bits.
MEMORY_CLOCK, BUS_WIDTH = 36, 37
FIRST_CAPABILITY = {"fp32": 0.0, "fp16": 5.3, "int8": 7.5, "tf32": 8.0, "bf16": 8.0, "fp8": 8.9}
CPU_TYPES = ("fp32", "bf16")
MULTIPLIER, MODULUS = 2654435761, 1 << 32  # of Knuth's multiplicative hash


def scale_of(depth: int) -> float:
    """Return what keeps a chain of products at the size that it starts with: a random walk of depth steps."""
    return 2.0 ** -round((depth.bit_length() - 1) / 2)


class NoType(RuntimeError):
    """The library multiplies no type on a device. rejected: by type, why."""

    def __init__(self, capability: str | None, rejected: dict[str, str]) -> None:
        reasons = "; ".join(dict.fromkeys(rejected.values()))
        super().__init__(f"compute capability {capability}: {', '.join(rejected)} rejected by {reasons}")
        self.capability = capability


class Engine(ABC):
    """Computes on one device, in the process that opened it. A matrix is what an engine makes of it, with its nbytes
    and itemsize. Every method raises what the library of the engine raises.

    rows: of the chain that is repeated. without: ways through memory and operations that the engine does not have.
    """

    bus_id: str | None
    small: bool
    mig: bool
    gauge: Gauge | None
    rows: int
    without: tuple[str, ...] = ()

    @abstractmethod
    def open(self, setup: Setup) -> Opened:
        """Open the device."""

    @abstractmethod
    def attribute(self, which: int) -> int | None:
        """Return an attribute of the GPU from the driver; None on a CPU, or if it is rejected."""

    @abstractmethod
    def seconds(self, once: Callable[[], object], repeats: int) -> float:
        """Return the time of so many, by the GPU's own clock if there is one."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for the device."""

    @abstractmethod
    def pair(self, type_: str, rows: int, depth: int, columns: int) -> tuple[Any, Any]:
        """Return two matrices whose product has so many rows and columns."""

    @abstractmethod
    def multiply(self, type_: str, left: Any, right: Any) -> Any:
        """Return the product, by the kernel that the type needs."""

    @abstractmethod
    def shrink(self, type_: str, product: Any) -> Any:
        """Return a product as the left matrix of the next one."""

    @abstractmethod
    def memory(self, way: str, size: int) -> Callable[[], object]:
        """Return what moves so many bytes through memory."""

    @abstractmethod
    def digest(self, result: Any) -> int:
        """Return a number below 2**64 that a change of one value changes."""

    def begin(self, setup: Setup) -> None:
        """Keep what the steps need of the setup."""
        self.bus_id, self.small, self.mig = setup.device.bus_id, setup.small, setup.device.is_mig
        self.gauge = Gauge.of(self.bus_id) if self.bus_id is not None else None

    def run(self, step: ComputeStep) -> Answer:
        """Run one step while the GPU is read."""
        started = time.monotonic()
        with read_meanwhile(self.gauge if step.kind != "rest" else None) as samples:
            if step.kind == "rest":
                time.sleep(step.seconds)
                answer = Answer()
            elif step.kind == "results":
                digests, values = self._repeated(step)
                answer = Answer(digests=digests, values=values)
            else:
                work, once = self._product(step.what) if step.kind == "matrix" else self._moved(step.what)
                answer = Answer(rates=self._rates(work, once, step.seconds))
        seconds = time.monotonic() - started
        return replace(answer, samples=tuple(samples), errors=self._errors(), seconds=seconds)

    def _errors(self) -> dict[str, int]:
        return self.gauge.errors() if self.gauge is not None else {}

    def opened(
        self, name: str, capability: str | None, multiprocessors: int | None, versions: dict[str, str | None]
    ) -> Opened:
        """Return what the device is, and why the library rejects types that it has. Raises NoType.

        name: of the library, with its version.
        """
        able: Sequence[str] = CPU_TYPES
        if capability is not None:
            able = [type_ for type_ in TYPES if float(capability) >= FIRST_CAPABILITY[type_]]
        rejected: dict[str, str] = {}
        for type_ in able:
            try:
                self.multiply(type_, *self.pair(type_, 64, 64, 64))
                self.wait()
            except (RuntimeError, AttributeError, NotImplementedError, ValueError) as error:  # noqa: PERF203 - each type by itself
                rejected[type_] = f"{name}: {error}".splitlines()[0]
        types = tuple(type_ for type_ in able if type_ not in rejected)
        if not types:
            raise NoType(capability, rejected)
        khz = self.attribute(MEMORY_CLOCK)
        return Opened(
            types=types,
            capability=capability,
            multiprocessors=multiprocessors,
            memory_bus_bits=None if self.mig else self.attribute(BUS_WIDTH),  # an instance has a part of the memory
            memory_clock_mhz=khz / 1000 if khz else None,
            versions=versions,
            memory_limit_c=self.gauge.memory_limit_c() if self.gauge is not None else None,
            rejected=rejected,
            without=self.without,
            errors=self._errors(),
        )

    def _size(self, large: int, small: int) -> int:
        return small if self.small else large

    def _product(self, type_: str) -> tuple[float, Callable[[], object]]:
        side = self._size(SIDE, SMALL_SIDE)
        left, right = self.pair(type_, side, side, side)
        return 2.0 * side**3, lambda: self.multiply(type_, left, right)

    def _moved(self, way: str) -> tuple[float, Callable[[], object]]:
        """Return the bytes that a way through memory counts, and what moves them."""
        size = self._size(MEMORY_BYTES, SMALL_MEMORY_BYTES)
        return size * (2 if way == "copy" else 1), self.memory(way, size)

    def _rates(self, work: float, once: Callable[[], object], seconds: float) -> tuple[float, ...]:
        warm = time.monotonic()
        while True:
            once()
            self.wait()
            if time.monotonic() - warm >= min(WARM_UP_S, seconds / 3):
                break
        repeats = max(1, round(SAMPLE_S / max(self.seconds(once, 1), 1e-7)))
        rates: list[float] = []
        began = time.monotonic()
        while len(rates) < LEAST_SAMPLES or time.monotonic() - began < seconds:
            rates.append(repeats * work / self.seconds(once, repeats))
        return tuple(rates)

    def _repeated(self, step: ComputeStep) -> tuple[tuple[str, ...], int]:
        """Repeat an operation until the time is over. Return a digest of each repeat and the values that it covers."""
        values, chain = 0, self.operation(step.what)
        digests: list[str] = []
        began = time.monotonic()
        while len(digests) < LEAST_SAMPLES or time.monotonic() - began < step.seconds:
            values, digest = 0, 0
            for result in chain():
                values += result.nbytes // result.itemsize
                digest = (digest * 31 + self.digest(result)) % (1 << 64)
            digests.append(f"{digest:016x}")
            if step.phase == "steps":  # the digest was read, so the device is idle
                time.sleep(PAUSE_S)
        return tuple(digests), values

    def operation(self, name: str) -> Callable[[], Iterable[Any]]:
        """Return what yields the results of one repeat of an operation of the plan."""
        type_ = name.partition("-")[2]
        rows, depth = self._size(self.rows, SMALL_ROWS), self._size(DEPTH, SMALL_DEPTH)
        left, right = self.pair(type_, rows, depth, depth)
        return lambda: self._chain(type_, left, right)

    def _chain(self, type_: str, left: Any, right: Any) -> Iterator[Any]:
        """Every product is digested, not the last alone: what rounding removes from the next one is seen."""
        for _ in range(LINKS):
            made = self.multiply(type_, left, right)
            yield made
            left = self.shrink(type_, made)
