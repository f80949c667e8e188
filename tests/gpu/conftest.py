"""Tests on real GPUs. They are asked for by ``-m gpu`` and then fail, never skip, where there is none.

Copies need no torch: any Python with gpucheck's own packages and pytest will do. Training needs torch.
"""

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone

import pytest

from gpucheck.host import live_host
from gpucheck.host.simulated import machine_directory
from gpucheck.measure.engines.driver.engine import DriverEngine
from gpucheck.measure.planning.selection import device as end_of
from gpucheck.measure.running.child import open_engine
from gpucheck.measure.values import Opened, Setup
from gpucheck.model import NvmlReading
from tests.gpu.kept import RESULTS, Kept

BUFFER_BYTES = 256 << 20


@pytest.fixture(scope="session")
def nvml():
    """NVML's reading of this host, with a GPU in it."""
    reading = live_host(isolated=True, deadline_s=120.0).nvml()
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


@pytest.fixture(scope="session", autouse=True)
def recording(device, tmp_path_factory):
    """The recording of this machine: taken first, so that there is one whatever the tests come to."""
    name = f"gpu-{device.name.replace(' ', '-')}-recording-{datetime.now(timezone.utc):%Y-%m-%d}.json.gz"
    file = (RESULTS if machine_directory() is None else tmp_path_factory.mktemp("recording")) / name
    words = [sys.executable, "-m", "gpucheck", "record", "--full", "-o", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(words)}: {done.stderr}", pytrace=False)
    return file


@pytest.fixture(scope="session")
def opened(devices):
    """The engine on every GPU, and what it could set up."""
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
def kept(nvml, opened, device, recording):
    """Numbers of this run by name, written with machine and versions when the tests are over."""
    numbers = Kept(recording.name.partition("-recording")[0])
    yield numbers
    if numbers and machine_directory() is None:
        now = datetime.now(timezone.utc)
        about = {
            "date": now.isoformat(timespec="seconds"),
            "gpu": device.name,
            "driver": nvml.driver_version,
            **opened[1].versions,
            "kernel": platform.release(),
            "python": platform.python_version(),
        }
        file = RESULTS / f"{numbers.stem}-{now:%Y-%m-%d}.json"
        file.write_text(json.dumps(about | {"numbers": numbers}, indent=2) + "\n")
