"""What the tests of the simulator share: machines whose NVML the real pynvml reads."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpucheck import simulator
from tests.shared import made_once
from tests.simulator.helpers import DRIVER


@pytest.fixture
def nvml_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], list[Any]]]:
    """Start NVML on a machine directory and return its GPUs; NVML is shut down afterwards.

    The process must have the library already: ``activate`` loads it.
    """
    with contextlib.ExitStack() as stack:

        def start(machine: Path) -> list[Any]:
            monkeypatch.setenv("GPUCHECK_SIMULATOR", str(machine))
            pynvml.nvmlInit()
            stack.callback(pynvml.nvmlShutdown)
            return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

        yield start


@pytest.fixture
def nvml(activate: Callable[..., Path], nvml_on: Callable[[Path], list[Any]]) -> Callable[..., list[Any]]:
    """Start NVML on a profile with faults and return its GPUs."""
    return lambda profile, *faults: nvml_on(activate(profile, faults))


@pytest.fixture(scope="session")
def path_with_libraries(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> str:
    """A PATH on which ``cc`` hands out libraries of ``DRIVER``, compiled once: for tests of what becomes of them."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(cache))
            simulator.build_library(folder, DRIVER)
            simulator.build_cuda_library(folder, DRIVER)
        found = f'"{folder}/${{2##*/}}.{DRIVER}"'
        compiler = folder / "cc"
        compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncat {found} >"$2" && chmod +x "$2"\n')
        compiler.chmod(0o755)

    return f"{made_once(tmp_path_factory, 'compiler', make)}:{os.environ['PATH']}"
