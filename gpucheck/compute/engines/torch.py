"""torch on one device, a GPU or the CPU: timing, repeats, operands, digests. torch is imported in children only.

The operands are made of integers by arithmetic that is exact in every type, so they are equal on all devices.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import msgspec

from gpucheck.compute.values import REDUCTION, TYPES, Answer, ComputeStep, Opened, Setup
from gpucheck.host.nvml.gauge import Gauge
from gpucheck.model.compute import Sample

READ_PAUSE_S = 0.1
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
        while not stop.wait(READ_PAUSE_S) and len(samples) < MOST:
            sample = gauge.read()
            if not stop.is_set():  # a reading that ended after the load shows an idle GPU
                samples.append(msgspec.structs.replace(sample, at=round(time.monotonic() - began, 3)))


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


class TorchEngine:
    """Computes on one device, in the process that opened it. Every method raises what torch raises."""

    bus_id: str | None
    small: bool
    mig: bool
    readings: Readings

    def open(self, setup: Setup) -> Opened:
        """Open the device. Raises LookupError if torch has no device with this bus id."""
        import torch

        self.torch = torch
        self._factors: Any = None
        torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import the compiler
        self.begin(setup)
        if self.bus_id is None:
            torch.set_num_threads(1)
            self.device: Any = torch.device("cpu")
        else:
            self.device = torch.device("cuda", self._ordinal(self.bus_id))
            torch.cuda.set_device(self.device)
        known = torch.cuda.get_device_properties(self.device) if self.bus_id else None
        capability = f"{known.major}.{known.minor}" if known else None
        multiprocessors = known.multi_processor_count if known else None
        versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
        return self.opened(f"torch {torch.__version__}", capability, multiprocessors, versions)

    def _ordinal(self, bus_id: str) -> int:
        cuda = self.torch.cuda
        found = [cuda.get_device_properties(number) for number in range(cuda.device_count())]
        for number, known in enumerate(found):
            if f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0" == bus_id:
                return number
        build = self.torch.version.cuda
        why = f"of CUDA {build} sees {len(found)} GPUs" if build else "is a build for CPUs"
        raise LookupError(f"torch {self.torch.__version__} {why}, and not {bus_id}")

    def begin(self, setup: Setup) -> None:
        """Keep what the steps need of the setup."""
        self.bus_id, self.small, self.mig = setup.device.bus_id, setup.small, setup.device.is_mig
        self.readings = Readings(self.bus_id)

    def run(self, step: ComputeStep) -> Answer:
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
                self.multiply(type_, *self._pair(type_, 64, 64, 64))
                self.wait()
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
        """Return the time of so many, by the GPU's own clock if there is one."""
        if self.bus_id is None:
            began = time.perf_counter()
            for _ in range(repeats):
                once()
            return max(time.perf_counter() - began, 1e-9)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            once()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

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

    def wait(self) -> None:
        """Wait for the GPU; on the CPU torch returns when it is done."""
        if self.bus_id is not None:
            self.torch.cuda.synchronize(self.device)

    def numbers(self, rows: int, columns: int, seed: int) -> Any:
        """Return whole numbers as float32."""
        numbers = self.torch.arange(rows * columns, dtype=self.torch.int64, device=self.device)
        mixed = (numbers + seed * 7919) * MULTIPLIER % MODULUS
        mixed = (mixed ^ (mixed >> 15)) * MULTIPLIER % MODULUS
        return ((mixed >> 16) % 255 - 127).to(self.torch.float32).reshape(rows, columns)

    def cast(self, type_: str, numbers: Any) -> Any:
        torch = self.torch
        if type_ == "int8":
            return numbers.clamp(-127, 127).to(torch.int8)
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": getattr(torch, "float8_e4m3fn", None)}
        return (numbers / 128).to(kinds.get(type_, torch.float32))

    def multiply(self, type_: str, left: Any, right: Any) -> Any:
        """Return the product, by the kernel that the type needs."""
        torch = self.torch
        if type_ in ("fp32", "tf32"):
            torch.set_float32_matmul_precision("high" if type_ == "tf32" else "highest")
        if type_ == "int8":
            return torch._int_mm(left, right)
        if type_ == "fp8":
            one = torch.ones((), device=self.device)
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return left @ right

    def shrink(self, type_: str, product: Any) -> Any:
        if type_ == "int8":
            return (product >> 9).clamp(-127, 127).to(self.torch.int8)
        return product.to(self.torch.float8_e4m3fn) if type_ == "fp8" else product

    def memory(self, way: str, size: int) -> Callable[[], object]:
        here = self.torch.ones(size // 4, dtype=self.torch.float32, device=self.device)
        if way == "read":
            return lambda: here.sum()
        if way == "write":
            return lambda: here.fill_(1.0)
        there = self.torch.empty_like(here)
        return lambda: there.copy_(here)

    def reduction(self, numbers: Any) -> Iterator[Any]:
        yield from (numbers.sum(1), numbers.sum(0), numbers.softmax(1))

    def attention(self, left: Any, right: Any, heads: int) -> Iterator[Any]:
        """Yield keys, weights and values."""
        self.torch.set_float32_matmul_precision("highest")
        query = left.reshape(heads, -1, left.shape[1])
        key = (left @ right).reshape(query.shape)
        weights = (query @ key.transpose(1, 2) / left.shape[1] ** 0.5).softmax(-1)
        yield from (key, weights, weights @ query)

    def digest(self, result: Any) -> int:
        """Return a sum of the bits, eight bytes at a time."""
        torch = self.torch
        flat = result.contiguous().reshape(-1).view(torch.int64)
        if self._factors is None or len(self._factors) < len(flat):
            count = torch.arange(len(flat), dtype=torch.int64, device=self.device)
            self._factors = count * 2 * MULTIPLIER + 1
        return int((flat * self._factors[: len(flat)]).sum().item()) % (1 << 64)
