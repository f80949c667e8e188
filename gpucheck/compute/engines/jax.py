"""JAX on one device, a GPU or the CPU, for hosts without torch. Imported in children only."""

import importlib.metadata
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gpucheck.compute.engines.base import MODULUS, MULTIPLIER, ArrayEngine
from gpucheck.compute.values import Opened, Setup

CUBLAS = ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12")
# XLA may turn these into products of a wider type, whose rate would look like that of a slow GPU.
OMITTED = ("fp8", "int8")


class JaxEngine(ArrayEngine):
    """See ``engines.protocol``."""

    def open(self, setup: Setup) -> Opened:
        """Open the device. Raises LookupError if JAX has no device for this GPU."""
        self.begin(setup)
        if self.bus_id is not None:
            if setup.device.uuid is None:
                raise LookupError(f"JAX needs the UUID of a GPU to select it, and NVML reports none for {self.bus_id}")
            os.environ["CUDA_VISIBLE_DEVICES"] = setup.device.uuid  # JAX knows no bus ids
        import jax
        import jaxlib

        jax.config.update("jax_enable_x64", True)  # digests have 64 bits
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_platforms", "cpu" if self.bus_id is None else "cuda")
        self.jax, self.np, self.lax = jax, jax.numpy, jax.lax
        device = self._device()
        capability = str(device.compute_capability) if self.bus_id else None
        self._compile()
        multiprocessors = getattr(device, "core_count", None) if self.bus_id else None
        versions = {
            "jax": str(jax.__version__),
            "jaxlib": str(jaxlib.__version__),
            "cuda": str(device.client.platform_version).splitlines()[-1] if self.bus_id else None,
            "cublas": _installed(CUBLAS) if self.bus_id else None,
        }
        return self.opened(f"jax {jax.__version__}", capability, multiprocessors, versions)

    def _device(self) -> Any:
        if self.bus_id is None:
            return self.jax.devices("cpu")[0]
        try:
            return self.jax.devices("cuda")[0]
        except RuntimeError as error:
            why = f"jax {self.jax.__version__} cannot use {self.bus_id}"
            raise LookupError(f"{why} (for CUDA: jax[cuda12] or jax[cuda13]): {error}") from error

    def _compile(self) -> None:
        """Each operation is compiled by itself: joined, XLA would compute less than is written here."""
        jit, lax, np = self.jax.jit, self.lax, self.np
        precisions = {"fp32": lax.Precision.HIGHEST, "tf32": lax.DotAlgorithmPreset.TF32_TF32_F32}
        self._dots = {
            type_: jit(partial(lax.dot, precision=precisions.get(type_))) for type_ in ("fp32", "tf32", "bf16", "fp16")
        }
        self._reduction = jit(lambda n: (n.sum(1), n.sum(0), self.jax.nn.softmax(n, axis=1)))
        self._attention = jit(self._attend, static_argnums=2)
        self._digest = jit(self._summed)
        self._sum, self._copy = jit(np.sum), jit(np.copy)
        self._full = jit(lambda value, count: np.full((count,), value, np.float32), static_argnums=1)

    def wait(self, result: Any) -> None:
        """Wait for a result; a GPU computes in the order of the calls."""
        self.jax.block_until_ready(result)

    def numbers(self, rows: int, columns: int, seed: int) -> Any:
        """Return whole numbers as float32."""
        numbers = self.np.arange(rows * columns, dtype=self.np.int64)
        mixed = (numbers + seed * 7919) * MULTIPLIER % MODULUS
        mixed = (mixed ^ (mixed >> 15)) * MULTIPLIER % MODULUS
        return ((mixed >> 16) % 255 - 127).astype(self.np.float32).reshape(rows, columns)

    def cast(self, type_: str, numbers: Any) -> Any:
        """Return the numbers in a type of JAX. Raises NotImplementedError for types that it may widen."""
        if type_ in OMITTED:
            raise NotImplementedError("XLA may compute it in a wider type, so its rate states nothing")
        kinds = {"bf16": self.np.bfloat16, "fp16": self.np.float16}
        return (numbers / 128).astype(kinds.get(type_, self.np.float32))

    def multiply(self, type_: str, left: Any, right: Any) -> Any:
        """Return the product."""
        return self._dots[type_](left, right)

    def shrink(self, type_: str, product: Any) -> Any:  # noqa: ARG002 - products have the type of their operands
        """Return the product itself."""
        return product

    def memory(self, way: str, size: int) -> Callable[[], object]:
        """Return what moves size bytes."""
        count = size // 4
        if way == "write":
            return lambda: self._full(1.0, count)
        here = self._full(1.0, count)
        return partial(self._sum if way == "read" else self._copy, here)

    def reduction(self, numbers: Any) -> Iterable[Any]:
        """Return sums and a softmax."""
        return self._reduction(numbers)  # type: ignore[no-any-return]  # arrays of JAX

    def attention(self, left: Any, right: Any, heads: int) -> Iterable[Any]:
        """Return keys, weights and values."""
        return self._attention(left, right, heads)  # type: ignore[no-any-return]  # arrays of JAX

    def _attend(self, left: Any, right: Any, heads: int) -> tuple[Any, Any, Any]:
        dot = partial(self.np.matmul, precision=self.lax.Precision.HIGHEST)
        query = left.reshape(heads, -1, left.shape[1])
        key = dot(left, right).reshape(query.shape)
        weights = self.jax.nn.softmax(dot(query, key.transpose(0, 2, 1)) / left.shape[1] ** 0.5, axis=-1)
        return key, weights, dot(weights, query)

    def digest(self, result: Any) -> int:
        """Return a sum of the bits, value by value."""
        return int(self._digest(result)) % (1 << 64)

    def _summed(self, result: Any) -> Any:
        np = self.np
        unsigned = {2: np.uint16, 4: np.uint32}[result.dtype.itemsize]
        bits = self.lax.bitcast_convert_type(result, unsigned).reshape(-1).astype(np.uint64)
        factors = np.arange(bits.size, dtype=np.uint64) * np.uint64(2 * MULTIPLIER) + np.uint64(1)
        return (bits * factors).sum()


def _installed(names: Iterable[str]) -> str | None:
    """Return the version of the first package that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203 - a few names
            continue
    return None
