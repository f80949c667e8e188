"""What every array library does for a step: timing, repeats, operands, digests. A library adds its own arithmetic.

The operands are made of integers by arithmetic that is exact in every type, so they are equal on all devices.
"""

import ctypes
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpucheck.compute.engines.nvml_samples import Readings
from gpucheck.compute.plan import REDUCTION, TYPES
from gpucheck.compute.values import Answer, Opened, Setup, Step

# Sizes on a GPU and on a CPU. A square product; the chain that is repeated, rows x depth by depth x depth.
SIDE, ROWS, DEPTH, HEADS = 8192, 32768, 1024, 32
SMALL_SIDE, SMALL_ROWS, SMALL_DEPTH, SMALL_HEADS = 256, 256, 64, 2
MEMORY_BYTES, SMALL_MEMORY_BYTES = 1 << 30, 16 << 20  # larger than any cache
LINKS = 4  # products of one chain
LEAST_SAMPLES, SAMPLE_S, WARM_UP_S = 7, 0.02, 0.3
PAUSE_S = 0.05  # of the phase with pauses: longer than a power supply smooths
# CUdevice_attribute: memory clock in kHz, width of the memory bus in bits.
MEMORY_CLOCK, BUS_WIDTH = 36, 37
FIRST_CAPABILITY = {"fp32": 0.0, "fp16": 5.3, "int8": 7.5, "tf32": 8.0, "bf16": 8.0, "fp8": 8.9}
CPU_TYPES = ("fp32", "bf16")
MULTIPLIER, MODULUS = 2654435761, 1 << 32  # of Knuth's multiplicative hash


class ArrayEngine(ABC):
    """An engine as in ``engines.protocol``, on the arrays of one library."""

    bus_id: str | None
    small: bool
    mig: bool
    readings: Readings

    @abstractmethod
    def open(self, setup: Setup) -> Opened:
        """Find the device, prepare it and return what it is."""

    @abstractmethod
    def numbers(self, rows: int, columns: int, seed: int) -> Any:
        """Return whole numbers of -127 to 127 as float32, the same on every device."""

    @abstractmethod
    def cast(self, type_: str, numbers: Any) -> Any:
        """Return the numbers in a type; by a power of two smaller where they are not whole."""

    @abstractmethod
    def multiply(self, type_: str, left: Any, right: Any) -> Any:
        """Return the product of two matrices of a type."""

    @abstractmethod
    def shrink(self, type_: str, product: Any) -> Any:
        """Return a product as the left operand of the next one."""

    @abstractmethod
    def memory(self, way: str, size: int) -> Callable[[], object]:
        """Return what moves size bytes once: read, write or copy."""

    @abstractmethod
    def reduction(self, numbers: Any) -> Iterable[Any]:
        """Return sums by row and by column, and a softmax."""

    @abstractmethod
    def attention(self, left: Any, right: Any, heads: int) -> Iterable[Any]:
        """Return keys, weights and values of one attention step."""

    @abstractmethod
    def digest(self, result: Any) -> int:
        """Return a sum of the bits by place, modulo 2**64. Each factor is odd, so one changed value changes it."""

    @abstractmethod
    def wait(self, result: Any) -> None:
        """Wait until a result, and all work before it, is there."""

    def begin(self, setup: Setup) -> None:
        """Keep what the steps need of the setup."""
        self.bus_id, self.small, self.mig = setup.device.bus_id, setup.small, setup.device.is_mig
        self.readings = Readings(self.bus_id)

    def run(self, step: Step) -> Answer:
        """Run one step while the GPU is read."""
        started = time.monotonic()
        if step.kind == "rest":
            time.sleep(step.seconds)
            return Answer(errors=self.readings.errors(), seconds=time.monotonic() - started)
        with self.readings:
            if step.kind == "results":
                digests, values = self._repeated(step)
                answer = Answer(digests=digests, values=values)
            else:
                work, once = self._product(step.what) if step.kind == "matrix" else self._moved(step.what)
                answer = Answer(rates=self._rates(work, once, step.seconds))
        return Answer(
            rates=answer.rates,
            digests=answer.digests,
            values=answer.values,
            samples=self.readings.samples(),
            errors=self.readings.errors(),
            seconds=time.monotonic() - started,
        )

    def opened(
        self, name: str, capability: str | None, multiprocessors: int | None, versions: dict[str, str | None]
    ) -> Opened:
        """Return what the device is. name: of the library, with its version. Raises RuntimeError without any type."""
        types, rejected = self.usable(capability, name)
        if not types:
            reasons = "; ".join(dict.fromkeys(rejected.values()))
            raise RuntimeError(f"compute capability {capability}: {', '.join(rejected)} rejected by {reasons}")
        khz = self.attribute(MEMORY_CLOCK)
        return Opened(
            types=types,
            capability=capability,
            multiprocessors=multiprocessors,
            memory_bus_bits=None if self.mig else self.attribute(BUS_WIDTH),  # an instance has a part of the memory
            memory_clock_mhz=khz / 1000 if khz else None,
            versions=versions,
            memory_limit_c=self.readings.memory_limit_c(),
            rejected=rejected,
            errors=self.readings.errors(),
        )

    def usable(self, capability: str | None, name: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the types that the library multiplies on this device, and why it rejects others that the device has.

        name: of the library, with its version.
        """
        able: Sequence[str] = CPU_TYPES
        if capability is not None:
            able = [type_ for type_ in TYPES if float(capability) >= FIRST_CAPABILITY[type_]]
        rejected: dict[str, str] = {}
        for type_ in able:
            try:
                self.wait(self.multiply(type_, *self._pair(type_, 64, 64, 64)))
            except (RuntimeError, AttributeError, NotImplementedError, ValueError) as error:  # noqa: PERF203 - each type by itself
                rejected[type_] = f"{name}: {error}".splitlines()[0]
        return tuple(type_ for type_ in able if type_ not in rejected), rejected

    def attribute(self, which: int) -> int | None:
        """Return an attribute of the GPU from the driver; None on a CPU, or if it is rejected."""
        if self.bus_id is None:
            return None
        library, device, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
        if library.cuDeviceGetByPCIBusId(ctypes.byref(device), self.bus_id.encode()):
            return None
        return value.value or None if not library.cuDeviceGetAttribute(ctypes.byref(value), which, device) else None

    def seconds(self, once: Callable[[], object], repeats: int) -> float:
        """Return the time of so many, by the clock of the CPU."""
        began, last = time.perf_counter(), None
        for _ in range(repeats):
            last = once()
        self.wait(last)
        return max(time.perf_counter() - began, 1e-9)

    def _size(self, large: int, small: int) -> int:
        return small if self.small else large

    def _pair(self, type_: str, rows: int, depth: int, columns: int) -> tuple[Any, Any]:
        left, right = self.numbers(rows, depth, 1), self.numbers(columns, depth, 2)
        # Keeps a chain of products at the size that it starts with: a random walk of depth steps.
        scale = 2.0 ** -round((depth.bit_length() - 1) / 2)
        return self.cast(type_, left), self.cast(type_, right if type_ == "int8" else right * scale).T

    def _product(self, type_: str) -> tuple[float, Callable[[], object]]:
        side = self._size(SIDE, SMALL_SIDE)
        left, right = self._pair(type_, side, side, side)
        return 2.0 * side**3, lambda: self.multiply(type_, left, right)

    def _moved(self, way: str) -> tuple[float, Callable[[], object]]:
        """Return the bytes that a way through memory counts, and what moves them."""
        size = self._size(MEMORY_BYTES, SMALL_MEMORY_BYTES)
        return size * (2 if way == "copy" else 1), self.memory(way, size)

    def _rates(self, work: float, once: Callable[[], object], seconds: float) -> tuple[float, ...]:
        """Return work per second, sample by sample, after a warm-up by time."""
        warm = time.monotonic()
        while True:
            self.wait(once())
            if time.monotonic() - warm >= min(WARM_UP_S, seconds / 3):
                break
        repeats = max(1, round(SAMPLE_S / max(self.seconds(once, 1), 1e-7)))
        rates: list[float] = []
        began = time.monotonic()
        while len(rates) < LEAST_SAMPLES or time.monotonic() - began < seconds:
            rates.append(repeats * work / self.seconds(once, repeats))
        return tuple(rates)

    def _repeated(self, step: Step) -> tuple[tuple[str, ...], int]:
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
        rows, depth = self._size(ROWS, SMALL_ROWS), self._size(DEPTH, SMALL_DEPTH)
        if name == REDUCTION:
            numbers = self.numbers(rows, depth, 3) / 3  # thirds are inexact: the order of the sum is part of it
            return lambda: self.reduction(numbers)
        kind, _, type_ = name.partition("-")
        left, right = self._pair(type_, rows, depth, depth)
        heads = self._size(HEADS, SMALL_HEADS)
        if kind == "matrix":
            return lambda: self._chain(type_, left, right)
        return lambda: self.attention(left, right, heads)

    def _chain(self, type_: str, left: Any, right: Any) -> Iterator[Any]:
        """Every product is digested, not the last alone: what rounding removes from the next one is seen."""
        for _ in range(LINKS):
            made = self.multiply(type_, left, right)
            yield made
            left = self.shrink(type_, made)
