"""What the tests of the simulator share: machines of their own, their libraries through ctypes, programs on them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpucheck import simulator
from tests.shared import END_S

DRIVER = "580.178.04"


def write(directory: Path, name: str = "p100-pcie-x2", **options: Any) -> Path:
    """Write the machine of a profile with its driver loaded, unless the fields of its recipe say otherwise."""
    profile = simulator.load(name)
    simulator.write_machine(
        simulator.Recipe(profile=profile, **{"driver": profile.driver.state()} | options), directory
    )
    return directory


def switch(directory: Path, name: str, faults: Iterable[str]) -> None:
    """Give a machine these faults while programs use it: what its libraries read is replaced."""
    fresh = write(directory.with_name(f"{directory.name}.fresh"), name, software=True, faults=tuple(faults))
    for file in ("cuda.txt", "machine.txt"):
        (fresh / file).replace(directory / file)


def answering(directory: Path, machine: Path, table: str) -> Path:
    """Make a directory whose NVML answers as this table says; all else in it is another machine's."""
    directory.mkdir(exist_ok=True)
    (directory / "root").symlink_to(machine / "root")
    (directory / "machine.txt").write_text(table, encoding="utf-8")
    return directory


@contextmanager
def library_of(machine: Path, cache: Path) -> Iterator[ctypes.CDLL]:
    """Write a machine of two P100, and return an NVML library of its own that reads it; not initialized."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("GPUCHECK_SIMULATOR", str(write(machine)))
        yield ctypes.CDLL(str(simulator.build_library(machine / "lib", DRIVER)))


def handle(library: ctypes.CDLL, index: int = 0) -> ctypes.c_void_p:
    """Return the handle of a GPU."""
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == pynvml.NVML_SUCCESS
    return device


def code_of(call: Callable[..., object], *arguments: object) -> int:
    """Return the code of a call of pynvml: 0 if it succeeds."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        code: int = error.value
        return code
    return 0


def exported(library: Path | str) -> set[str]:
    """Return the symbols that a shared library defines."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listing.stdout.splitlines()}


def python(code: str, **environment: str) -> str:
    """Return what a Python program prints in a process of its own."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# Compiler flags of the address and undefined-behaviour sanitizers.
SANITIZED = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def sanitizer() -> str:
    """Return the runtime of the address sanitizer; skip the test if the compiler has none."""
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = found.stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("this C compiler has no address sanitizer")
    return runtime


def run_sanitized(runtime: str, libraries: Path, code: str) -> None:
    """Run a program that prints "done" on libraries that were compiled with the sanitizers."""
    program = libraries / "program.py"
    program.write_text(code, encoding="utf-8")
    environment = {"LD_PRELOAD": runtime, "LD_LIBRARY_PATH": str(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
