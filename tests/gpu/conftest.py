"""Tests on real GPUs. They are asked for by ``-m gpu`` and then fail, never skip, where there is none.

Copies need no torch: any Python with gpucheck's own packages and pytest will do. Training needs torch.
"""

import faulthandler
import os
import platform
import signal
import sys
from datetime import datetime, timezone

import pytest

from gpucheck.host import live_source
from gpucheck.measure.engines.driver.engine import DriverEngine
from gpucheck.measure.planning.selection import device as end_of
from gpucheck.measure.running.child import open_engine
from gpucheck.measure.values import Opened, Setup
from gpucheck.model import NvmlReading
from gpucheck.processes.environment import SET_FOR_COPIES
from tests.gpu.kept import Kept

LIMIT_S = 900 if "GPUCHECK_SIMULATOR" in os.environ else 120  # of one test
BUFFER_BYTES = 256 << 20


@pytest.fixture(scope="session")
def nvml():
    """NVML's reading of this host, with a GPU in it."""
    reading = live_source(isolated=True, deadline_s=120.0).read("nvml").nvml
    if not isinstance(reading, NvmlReading) or not reading.gpus:
        why = f"{reading.name}: {reading.detail}" if not isinstance(reading, NvmlReading) else "NVML lists no GPU"
        pytest.fail(f"the GPU tests were asked for: {why}. gpucheck verify --level quick says more", pytrace=False)
    return reading


@pytest.fixture(scope="session")
def devices(nvml):
    return tuple(map(end_of, nvml.gpus))


@pytest.fixture(scope="session")
def device(devices):
    return devices[0]


@pytest.fixture(autouse=True)
def in_time():
    """A test that takes too long fails; one that does not come back from the driver ends the process of its file."""

    def late(number, frame):
        pytest.fail(f"not at its end after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    faulthandler.dump_traceback_later(LIMIT_S + 20, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def opened(devices):
    """The engine on every GPU, and what it could set up, in the environment of a process that copies."""
    os.environ.update(SET_FOR_COPIES)
    made = DriverEngine()
    result = open_engine(
        made, Setup(engine="driver", devices=devices, buffer_bytes=BUFFER_BYTES, parent_pid=os.getpid())
    )
    assert isinstance(result, Opened), result
    return made, result


@pytest.fixture(scope="session")
def engine(opened):
    return opened[0]


@pytest.fixture(scope="session")
def cuda():
    """torch on a GPU, or a failure that says what is missing."""
    try:
        import torch
    except ModuleNotFoundError:
        pytest.fail("the training tests need torch with CUDA: python -m pip install torch numpy", pytrace=False)
    if not torch.cuda.is_available():
        why = "is a build without CUDA" if torch.version.cuda is None else "sees no CUDA device"
        pytest.fail(
            f"the GPU tests were asked for, and torch {torch.__version__} {why}: gpucheck smoke says which build to "
            "install, gpucheck verify --level quick what is wrong with driver and GPUs",
            pytrace=False,
        )
    return torch


@pytest.fixture(scope="session")
def kept(nvml, opened, device):
    """Numbers of this run by name, written with machine and versions as soon as there is one."""
    now = datetime.now(timezone.utc)
    about = {
        "date": now.isoformat(timespec="seconds"),
        "gpu": device.name,
        "driver": nvml.driver_version,
        **opened[1].versions,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return Kept(f"gpu-{device.name.replace(' ', '-')}", about)
