"""torch on one device, a GPU or the CPU: timing, repeats, operands, digests. torch is imported in children only.

The operands are made of integers by arithmetic that is exact in every type, so they are equal on all devices.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpucheck.compute.engines.engine import DEPTH, MODULUS, MULTIPLIER, SMALL_DEPTH, SMALL_ROWS, Engine, scale_of
from gpucheck.compute.values import REDUCTION, Opened, Setup
from gpucheck.measure.engines.torch import ordinal, seconds

HEADS, SMALL_HEADS = 32, 2  # of the attention step


class TorchEngine(Engine):
    """Computes on one device, in the process that opened it. Every method raises what torch raises."""

    rows = 32768

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
            self.device = torch.device("cuda", ordinal(torch, setup.device))
            torch.cuda.set_device(self.device)
        known = torch.cuda.get_device_properties(self.device) if self.bus_id else None
        capability = f"{known.major}.{known.minor}" if known else None
        multiprocessors = known.multi_processor_count if known else None
        versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
        return self.opened(f"torch {torch.__version__}", capability, multiprocessors, versions)

    def attribute(self, which: int) -> int | None:
        if self.bus_id is None:
            return None
        library, device, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
        if library.cuDeviceGetByPCIBusId(ctypes.byref(device), self.bus_id.encode()):
            return None
        return value.value or None if not library.cuDeviceGetAttribute(ctypes.byref(value), which, device) else None

    def seconds(self, once: Callable[[], object], repeats: int) -> float:
        return seconds(self.torch, self.device, once, repeats)

    def pair(self, type_: str, rows: int, depth: int, columns: int) -> tuple[Any, Any]:
        left, right = self.numbers(rows, depth, 1), self.numbers(columns, depth, 2)
        return self.cast(type_, left), self.cast(type_, right if type_ == "int8" else right * scale_of(depth)).T

    def operation(self, name: str) -> Callable[[], Iterable[Any]]:
        if name.startswith("matrix-"):
            return super().operation(name)
        rows, depth = self._size(self.rows, SMALL_ROWS), self._size(DEPTH, SMALL_DEPTH)
        if name == REDUCTION:
            numbers = self.numbers(rows, depth, 3) / 3  # thirds are inexact: the order of the sum is part of it
            return lambda: self.reduction(numbers)
        left, right = self.pair(name.partition("-")[2], rows, depth, depth)
        return lambda: self.attention(left, right, self._size(HEADS, SMALL_HEADS))

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
