"""The recording of this machine is whole, and its replay comes to a verdict of the copies."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucheck.host.recording import read_recording
from gpucheck.model.full_record import CudaReading

pytestmark = pytest.mark.gpu


@pytest.fixture
def recording():
    """The file that make test-gpu wrote before these tests."""
    file = os.environ.get("GPUCHECK_RECORDING")
    if not file:
        pytest.skip("GPUCHECK_RECORDING names no recording: make test-gpu makes one")
    return Path(file)


def test_nvml_and_cuda_list_the_same_gpus(recording, nvml):
    full = read_recording(recording).full
    assert isinstance(full.cuda, CudaReading), full.cuda

    assert {device.bus_id.lower() for device in full.cuda.devices} == {gpu.pci_bus_id for gpu in nvml.gpus}
    for device in full.cuda.devices:
        assert device.attributes["MULTIPROCESSOR_COUNT"] > 0


def test_every_pair_and_method_was_timed(recording, nvml, opened):
    full = read_recording(recording).full
    assert full.bandwidth is not None, full.not_measured
    alone = {(one.src, one.dst) for one in full.timings if one.method == "ce-write" and one.purpose == "one direction"}
    places = range(len(nvml.gpus))

    if len(nvml.gpus) > 1:
        assert alone >= {(a, b) for a in places for b in places if a != b}
    assert full.bandwidth.versions == opened[1].versions


def test_its_replay_judges_the_copies(recording):
    words = [sys.executable, "-m", "gpucheck", "verify", "--only", "p2p", "--from", str(recording), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert {finding["verdict"] for finding in json.loads(done.stdout)["findings"]} - {"skip"}, done.stderr
