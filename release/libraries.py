"""The simulator's libraries, cross-compiled for every machine that has a wheel of its own: hosts need no compiler.

The compiler is Zig's (https://ziglang.org), a package on PyPI: it contains clang, and the C library of every machine in
every version, so the result depends on neither this machine nor its distribution.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from gpucheck.simulator.compiler import compile_cuda_library, compile_library, cuda_key, nvml_key
from gpucheck.simulator.nvml.library import Export, all_exports, exports
from release.problem import ReleaseError
from release.vendored import GLIBC

MISSING = (
    "ziglang is not installed, and without it the wheels cannot contain the simulator's libraries. "
    "Run make release, or: pip install -c constraints.txt ziglang"
)
# Typical C, and nothing of the machine that compiles: -s without names and paths of sources.
FLAGS = ("-s", "-Wno-deprecated-non-prototype")


def add_libraries(machine: str, scratch: Path, source: Path) -> None:
    """Put the CUDA driver library, and NVML in each of its releases, into a copy of the sources.

    machine: x86_64 or aarch64. Raises ReleaseError.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise ReleaseError(MISSING)
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", *FLAGS)
    folder = scratch / f"libraries-{machine}"
    folder.mkdir()
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.environ["ZIG_LOCAL_CACHE_DIR"] = str(scratch / "zig")
    place = source / "gpucheck/simulator/libraries"
    try:
        _move(compile_cuda_library(folder, (), compiler), place / cuda_key(machine))
        for chosen in releases():
            _move(compile_library(folder, chosen, (), compiler), place / nvml_key(machine, chosen))
    except OSError as error:
        raise ReleaseError(f"compiling for {machine}: {error.args[0]}") from error


def _move(library: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.move(library, folder)


def releases() -> Iterator[tuple[Export, ...]]:
    """Yield each set of functions that an NVML of any driver branch exports."""
    branches = {one.first for one in all_exports()} | {one.last + 1 for one in all_exports()} - {sys.maxsize + 1}
    yield from dict.fromkeys(chosen for branch in sorted(branches) if (chosen := exports(str(branch))))
