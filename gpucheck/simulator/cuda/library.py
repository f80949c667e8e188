"""Compile the simulated CUDA driver library with the system's C compiler."""

import hashlib
import platform
from pathlib import Path

from gpucheck.simulator.compiler import FLAGS, compile_sources, compiled, install

SOURCES = Path(__file__).parent
TABLE = SOURCES.parent / "nvml" / "table.c"  # both libraries read the same kind of file
SONAME = "libcuda.so.1"


def build_cuda_library(directory: Path, version: str) -> Path:
    """Put ``libcuda.so.<version>`` and the link ``libcuda.so.1`` into ``directory``; return the former.

    Raises ValueError for an invalid version, OSError, with the whole message in args[0], when there is no compiler
    or it rejects the source.
    """
    if not version or "/" in version:
        raise ValueError(f"libcuda.so.{version}: not a driver version")
    return install(_compiled(), directory, "libcuda.so", version)


def compile_cuda_library(folder: Path, flags: tuple[str, ...] = ()) -> Path:
    """Compile ``libcuda.so`` into ``folder``, with additional compiler ``flags``. Raises OSError as above."""
    own = (*FLAGS, "-fvisibility=hidden", f"-Wl,-soname,{SONAME}", *flags)
    return compile_sources("CUDA driver", folder / "libcuda.so", own, cuda_sources(), "-lm -ldl")


def cuda_sources() -> list[Path]:
    """Every C file of the library."""
    return [*sorted(SOURCES.glob("*.c")), TABLE]


def _compiled() -> Path:
    digest = hashlib.sha256(" ".join((*FLAGS, SONAME, platform.machine())).encode())
    headers = (*SOURCES.glob("*.h"), TABLE.parent / "simulator.h")
    for source in (*cuda_sources(), *sorted(headers)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return compiled(digest.hexdigest()[:24], "libcuda.so", compile_cuda_library)
