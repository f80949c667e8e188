"""Which array library computes: torch, or JAX where torch is not installed."""

from collections.abc import Mapping
from importlib.util import find_spec

from gpucheck.compute.engines.protocol import ComputeEngine
from gpucheck.compute.values import Library

# Bit-equal repeats need a fixed cuBLAS workspace.
_EVERY = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
_SET: dict[Library, dict[str, str]] = {
    "torch": {},
    # A kernel that is chosen by timing differs from GPU to GPU, and so do its roundings.
    "jax": {
        "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false --xla_gpu_deterministic_ops=true "
        "--xla_cpu_multi_thread_eigen=false",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    },
}


def preferred() -> Library:
    """Return the library that is installed, torch if both are or none is."""
    return "jax" if not _installed("torch") and _installed("jax") else "torch"


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # an import hook rejects it, or the module was inserted without a specification
        return False


def environment_for(library: Library, caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the caller's, without settings of JAX, and with those of the library."""
    return {name: value for name, value in caller.items() if not name.startswith("JAX_")} | _EVERY | _SET[library]


def engine_of(library: Library) -> ComputeEngine:
    """Return an engine, which imports its library when it opens."""
    if library == "jax":
        from gpucheck.compute.engines.jax import JaxEngine

        return JaxEngine()
    from gpucheck.compute.engines.torch import TorchEngine

    return TorchEngine()
