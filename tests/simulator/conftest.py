"""What the tests of the simulator share: machines whose NVML the real pynvml reads."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest


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
