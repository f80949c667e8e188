"""Compile the simulated CUDA driver library."""

import platform
from collections.abc import Sequence
from pathlib import Path

from gpucheck.simulator.compiler import compile_sources, compiled, install, source_key

SOURCES = Path(__file__).parent
TABLE = SOURCES.parent / "nvml" / "table.c"  # both libraries read the same kind of file
SONAME = "libcuda.so.1"
LIBRARY = "libcuda.so"


def build_cuda_library(directory: Path, version: str) -> Path:
    """Put ``libcuda.so.<version>`` and the link ``libcuda.so.1`` into ``directory``; return the former.

    Raises ValueError for an invalid version, OSError, with the whole message in args[0], when there is no compiler
    or it rejects the source.
    """
    if not version or "/" in version:
        raise ValueError(f"libcuda.so.{version}: not a driver version")
    return install(_compiled(), directory, "libcuda.so", version)


def compile_cuda_library(folder: Path, flags: Sequence[str] = (), compiler: Sequence[str] = ()) -> Path:
    """Compile ``libcuda.so`` into ``folder``, with additional compiler ``flags``. Raises OSError as above."""
    own = ("-fvisibility=hidden", f"-Wl,-soname,{SONAME}", *flags)
    return compile_sources("CUDA driver", folder / LIBRARY, own, cuda_sources(), "-lm -ldl", compiler)


def cuda_sources() -> list[Path]:
    return [*sorted(SOURCES.glob("*.c")), TABLE]


def cuda_key(machine: str) -> str:
    """Return the key of the library for a machine (x86_64)."""
    headers = (*SOURCES.glob("*.h"), TABLE.parent / "simulator.h")
    return source_key((SONAME, machine), (*cuda_sources(), *sorted(headers)))


def _compiled() -> Path:
    return compiled(cuda_key(platform.machine()), LIBRARY, compile_cuda_library)
