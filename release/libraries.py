"""The simulator's libraries, cross-compiled for every machine that has a wheel of its own: hosts need no compiler.

The compiler is Zig's (https://ziglang.org), a package on PyPI: it contains clang, and the C library of every machine in
every version, so the result depends on neither this machine nor its distribution.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gpucheck.simulator.cuda import library as cuda
from gpucheck.simulator.nvml import library as nvml
from gpucheck.simulator.nvml.library import Export, all_exports, exports
from release.problem import ReleaseError
from release.vendored import GLIBC

MISSING = (
    "ziglang is not installed, and without it the wheels cannot contain the simulator's libraries. "
    "Run make release, or: pip install -c constraints.txt ziglang"
)
# Typical C, and nothing of the machine that compiles: -s without names and paths of sources.
FLAGS = ("-s", "-Wno-deprecated-non-prototype")


def libraries(machine: str, scratch: Path) -> list[tuple[str, bytes]]:
    """(``key/library``, content) of the CUDA driver library and of NVML in each of its releases, ordered.

    machine: x86_64 or aarch64. Raises ReleaseError.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise ReleaseError(MISSING)
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", *FLAGS)
    folder = scratch / f"libraries-{machine}"
    folder.mkdir()
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.environ["ZIG_LOCAL_CACHE_DIR"] = str(scratch / "zig")
    try:
        built = [
            (f"{cuda.cuda_key(machine)}/{cuda.LIBRARY}", cuda.compile_cuda_library(folder, (), compiler).read_bytes())
        ]
        for chosen in releases():
            name = f"{nvml.nvml_key(machine, chosen)}/{nvml.LIBRARY}"
            built.append((name, nvml.compile_library(folder, chosen, (), compiler).read_bytes()))
    except OSError as error:
        raise ReleaseError(f"compiling for {machine}: {error.args[0]}") from error
    return sorted(built)


def releases() -> Iterator[tuple[Export, ...]]:
    """Yield each set of functions that an NVML of any driver branch exports."""
    branches = {one.first for one in all_exports()} | {one.last + 1 for one in all_exports()} - {sys.maxsize + 1}
    yield from dict.fromkeys(chosen for branch in sorted(branches) if (chosen := exports(str(branch))))
