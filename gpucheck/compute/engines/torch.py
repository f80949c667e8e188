"""torch on one device, a GPU or the CPU: products of matrices, memory, repeated operations. Imported in children only.

The operands are made of integers by arithmetic that is exact in every type, so they are equal on all devices.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
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


class TorchEngine:
    """See ``engines.protocol``."""

    def open(self, setup: Setup) -> Opened:
        """Open the device. Raises LookupError if torch has no device with this bus id."""
        import torch

        self.torch, self.small = torch, setup.small
        self._factors: Any = None
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.bus_id = setup.device.bus_id
        if self.bus_id is None:
            torch.set_num_threads(1)
            self.device: Any = torch.device("cpu")
        else:
            self.device = torch.device("cuda", self._ordinal(self.bus_id))
            torch.cuda.set_device(self.device)
        self.readings = Readings(self.bus_id)
        known = torch.cuda.get_device_properties(self.device) if self.bus_id else None
        capability = f"{known.major}.{known.minor}" if known else None
        able = CPU_TYPES if capability is None else [t for t in TYPES if float(capability) >= FIRST_CAPABILITY[t]]
        rejected: dict[str, str] = {}
        for type_ in able:
            try:
                self._multiply(type_, *self._pair(type_, 64, 64, 64))
                self._wait()
            except (RuntimeError, AttributeError) as error:  # noqa: PERF203 - each type by itself
                rejected[type_] = f"torch {torch.__version__}: {error}".splitlines()[0]
        return Opened(
            types=tuple(type_ for type_ in able if type_ not in rejected),
            capability=capability,
            multiprocessors=known.multi_processor_count if known else None,
            memory_bus_bits=self._attribute(BUS_WIDTH),
            memory_clock_mhz=khz / 1000 if (khz := self._attribute(MEMORY_CLOCK)) else None,
            versions={"torch": str(torch.__version__), "cuda": torch.version.cuda},
            rejected=rejected,
            errors=self.readings.errors(),
        )

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
                work, once = self._product(step.what) if step.kind == "matrix" else self._memory(step.what)
                answer = Answer(rates=self._rates(work, once, step.seconds))
        return Answer(
            rates=answer.rates,
            digests=answer.digests,
            values=answer.values,
            samples=self.readings.samples(),
            errors=self.readings.errors(),
            seconds=time.monotonic() - started,
        )

    def _ordinal(self, bus_id: str) -> int:
        cuda = self.torch.cuda
        found = [cuda.get_device_properties(number) for number in range(cuda.device_count())]
        for number, known in enumerate(found):
            if f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0" == bus_id:
                return number
        build = self.torch.version.cuda
        why = f"of CUDA {build} sees {len(found)} GPUs" if build else "is a build for CPUs"
        raise LookupError(f"torch {self.torch.__version__} {why}, and not {bus_id}")

    def _attribute(self, which: int) -> int | None:
        """Return an attribute that torch does not show, from the driver; None on a CPU, or if it is rejected."""
        if self.bus_id is None:
            return None
        library, device, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
        if library.cuDeviceGetByPCIBusId(ctypes.byref(device), self.bus_id.encode()):
            return None
        return value.value or None if not library.cuDeviceGetAttribute(ctypes.byref(value), which, device) else None

    def _wait(self) -> None:
        if self.bus_id is not None:
            self.torch.cuda.synchronize(self.device)

    def _size(self, large: int, small: int) -> int:
        return small if self.small else large

    def _numbers(self, rows: int, columns: int, seed: int) -> Any:
        """Return whole numbers of -127 to 127 as float32, the same on every device."""
        numbers = self.torch.arange(rows * columns, dtype=self.torch.int64, device=self.device)
        mixed = (numbers + seed * 7919) * MULTIPLIER % MODULUS
        mixed = (mixed ^ (mixed >> 15)) * MULTIPLIER % MODULUS
        return ((mixed >> 16) % 255 - 127).to(self.torch.float32).reshape(rows, columns)

    def _as(self, type_: str, numbers: Any) -> Any:
        """Return the numbers in a type; by a power of two smaller where they are not whole."""
        torch = self.torch
        if type_ == "int8":
            return numbers.clamp(-127, 127).to(torch.int8)
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": getattr(torch, "float8_e4m3fn", None)}
        return (numbers / 128).to(kinds.get(type_, torch.float32))

    def _pair(self, type_: str, rows: int, depth: int, columns: int) -> tuple[Any, Any]:
        left, right = self._numbers(rows, depth, 1), self._numbers(columns, depth, 2)
        # Keeps a chain of products at the size that it starts with: a random walk of depth steps.
        scale = 2.0 ** -round((depth.bit_length() - 1) / 2)
        return self._as(type_, left), self._as(type_, right if type_ == "int8" else right * scale).t()

    def _multiply(self, type_: str, left: Any, right: Any) -> Any:
        torch = self.torch
        if type_ in ("fp32", "tf32"):
            torch.set_float32_matmul_precision("high" if type_ == "tf32" else "highest")
        if type_ == "int8":
            return torch._int_mm(left, right)
        if type_ == "fp8":
            one = torch.ones((), device=self.device)
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return left @ right

    def _product(self, type_: str) -> tuple[float, Callable[[], object]]:
        side = self._size(SIDE, SMALL_SIDE)
        left, right = self._pair(type_, side, side, side)
        return 2.0 * side**3, lambda: self._multiply(type_, left, right)

    def _memory(self, way: str) -> tuple[float, Callable[[], object]]:
        size = self._size(MEMORY_BYTES, SMALL_MEMORY_BYTES)
        here = self.torch.ones(size // 4, dtype=self.torch.float32, device=self.device)
        if way == "read":
            return size, here.sum
        if way == "write":
            return size, lambda: here.fill_(1.0)
        there = self.torch.empty_like(here)
        return 2 * size, lambda: there.copy_(here)

    def _rates(self, work: float, once: Callable[[], object], seconds: float) -> tuple[float, ...]:
        """Return work per second, sample by sample, after a warm-up by time."""
        warm = time.monotonic()
        while True:
            once()
            self._wait()
            if time.monotonic() - warm >= min(WARM_UP_S, seconds / 3):
                break
        repeats = max(1, round(SAMPLE_S / max(self._seconds(once, 1), 1e-7)))
        rates: list[float] = []
        began = time.monotonic()
        while len(rates) < LEAST_SAMPLES or time.monotonic() - began < seconds:
            rates.append(repeats * work / self._seconds(once, repeats))
        return tuple(rates)

    def _seconds(self, once: Callable[[], object], repeats: int) -> float:
        """Return the time of so many: by the GPU's own clock, or by that of the CPU."""
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

    def _repeated(self, step: Step) -> tuple[tuple[str, ...], int]:
        """Repeat an operation until the time is over. Return a digest of each repeat and the values that it covers."""
        values, chain = 0, self._operation(step.what)
        digests: list[str] = []
        began = time.monotonic()
        while len(digests) < LEAST_SAMPLES or time.monotonic() - began < step.seconds:
            values, digest = 0, 0
            for result in chain():
                values += result.numel()
                digest = (digest * 31 + self._digest(result)) % (1 << 64)
            digests.append(f"{digest:016x}")
            if step.phase == "steps":
                self._wait()
                time.sleep(PAUSE_S)
        return tuple(digests), values

    def _operation(self, name: str) -> Callable[[], Iterator[Any]]:
        self.torch.set_float32_matmul_precision("highest")
        rows, depth = self._size(ROWS, SMALL_ROWS), self._size(DEPTH, SMALL_DEPTH)
        if name == REDUCTION:
            numbers = self._numbers(rows, depth, 3) / 3  # thirds are inexact: the order of the sum is part of it
            return lambda: iter((numbers.sum(1), numbers.sum(0), numbers.softmax(1)))
        kind, _, type_ = name.partition("-")
        left, right = self._pair(type_, rows, depth, depth)
        return (lambda: self._chain(type_, left, right)) if kind == "matrix" else lambda: self._attention(left, right)

    def _chain(self, type_: str, left: Any, right: Any) -> Iterator[Any]:
        """Every product is digested, not the last alone: what rounding removes from the next one is seen."""
        for _ in range(LINKS):
            made = self._multiply(type_, left, right)
            yield made
            left = (made >> 9).clamp(-127, 127).to(left.dtype) if type_ == "int8" else made.to(left.dtype)

    def _attention(self, left: Any, right: Any) -> Iterator[Any]:
        heads = self._size(HEADS, SMALL_HEADS)
        query = left.reshape(heads, -1, left.shape[1])
        key = (left @ right).reshape(query.shape)
        weights = (query @ key.transpose(1, 2) / left.shape[1] ** 0.5).softmax(-1)
        yield from (key, weights, weights @ query)

    def _digest(self, result: Any) -> int:
        """Return a sum of the bits by place, modulo 2**64. Each factor is odd, so one changed value changes it."""
        torch = self.torch
        flat = result.contiguous().reshape(-1).view(torch.int64)
        if self._factors is None or len(self._factors) < len(flat):
            count = torch.arange(len(flat), dtype=torch.int64, device=self.device)
            self._factors = count * 2 * MULTIPLIER + 1
        return int((flat * self._factors[: len(flat)]).sum().item()) % (1 << 64)
