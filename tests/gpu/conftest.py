"""Tests on a real GPU. They are asked for by ``-m gpu`` and then fail, never skip, where there is none."""

import ctypes
import json
import os
import platform
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpucheck.measure.engines.torch.engine import TorchEngine
from gpucheck.measure.engines.torch.runtime import library
from gpucheck.measure.running.child import open_engine
from gpucheck.measure.values import Device, Opened, Setup

RESULTS = Path(__file__).parents[2] / "bench/results"
BUFFER_BYTES = 256 << 20


@pytest.fixture(scope="session")
def cuda():
    """torch on a GPU, or a failure that says what is missing."""
    try:
        import torch
    except ModuleNotFoundError:
        pytest.fail("the GPU tests need torch with CUDA: python -m pip install torch numpy", pytrace=False)
    if not torch.cuda.is_available():
        why = "is a build without CUDA" if torch.version.cuda is None else "sees no CUDA device"
        pytest.fail(
            f"the GPU tests were asked for, and torch {torch.__version__} {why}: gpucheck smoke says which build to "
            "install, gpucheck verify --level quick what is wrong with driver and GPUs",
            pytrace=False,
        )
    return torch


@pytest.fixture(scope="session")
def device(cuda):
    """The first GPU, with the bus id that the CUDA runtime tells, whatever torch's build does."""
    text = ctypes.create_string_buffer(16)
    assert library(cuda).cudaDeviceGetPCIBusId(text, len(text), 0) == 0
    return Device(index=0, name=cuda.cuda.get_device_name(0), bus_id=text.value.decode().lower())


@pytest.fixture(scope="session")
def engine(cuda, device):
    made = TorchEngine()
    setup = Setup(engine="torch", devices=(device,), buffer_bytes=BUFFER_BYTES, parent_pid=os.getpid())
    opened = open_engine(made, setup)
    assert isinstance(opened, Opened), opened
    return made


@pytest.fixture(scope="session")
def kept(cuda, device):
    """Numbers of this run by name, written with machine and versions when the tests are over."""
    numbers: dict[str, float] = {}
    yield numbers
    if numbers:
        now = datetime.now(timezone.utc)
        about = {
            "date": now.isoformat(timespec="seconds"),
            "gpu": device.name,
            "torch": str(cuda.__version__),
            "cuda": cuda.version.cuda,
            "kernel": platform.release(),
            "python": platform.python_version(),
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        file = RESULTS / f"gpu-{device.name.replace(' ', '-')}-{now:%Y-%m-%d}.json"
        file.write_text(json.dumps(about | {"numbers": numbers}, indent=2) + "\n")
