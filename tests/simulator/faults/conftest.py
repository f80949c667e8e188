"""What the tests of faults share: a broken machine whose NVML the real pynvml reads."""

import contextlib
from typing import Any

import pynvml
import pytest


@pytest.fixture
def nvml(activate):
    """Activate a machine, start NVML on it and return its GPUs; NVML is shut down afterwards."""
    with contextlib.ExitStack() as stack:

        def start(profile: str, *faults: str) -> list[Any]:
            activate(profile, faults)
            pynvml.nvmlInit()
            stack.callback(pynvml.nvmlShutdown)
            return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

        yield start
