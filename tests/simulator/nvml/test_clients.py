"""gpustat and nvitop from PyPI run on every simulated machine and agree with gpucheck."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.model import DriverState
from gpucheck.simulator.machine import build
from tests.shared import sampled

pytestmark = pytest.mark.slow

GPUS = {name: len(build(simulator.load(name), DriverState()).gpus) for name in simulator.profile_names()}


def run(machine: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "GPUCHECK_SIMULATOR": str(machine),
        "LD_LIBRARY_PATH": str(machine / "lib"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "profile",
    sampled([name for name, gpus in GPUS.items() if gpus], lambda number, name: number % 8 == 0 and GPUS[name] <= 16),
)
def test_clients_agree_with_gpucheck(activate, profile):
    """Names, ids, memory, heat, limits, use, processes, MIG devices; one GPU is in use."""
    machine = activate(profile, ["busy-gpu:gpu=0,memory=1000"])
    done = run(machine, sys.executable, str(Path(__file__).parent / "clients.py"))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    gpucheck = results["pynvml"]

    assert len(gpucheck) == GPUS[profile]
    assert [gpu["processes"] for gpu in gpucheck] == [[[1, 1000]], *[[]] * (len(gpucheck) - 1)]
    assert results["gpustat"] == [{key: gpu[key] for key in gpu if key not in ("bus_id", "mig")} for gpu in gpucheck]
    assert results["nvitop"] == [{**gpu, "bus_id": f"0000{gpu['bus_id'].upper()}"} for gpu in gpucheck]
    for program, (status, text) in results["terminal"].items():
        assert status == 0, program
        assert text.count(gpucheck[0]["bus_id"].upper() if program == "nvitop" else gpucheck[0]["name"]) >= 1


def test_clients_without_a_driver_say_so(activate):
    """The machine without GPUs, and one whose module is not loaded."""
    for machine in (activate("no-gpu"), activate("p100-pcie-x2", ["driver-not-loaded"])):
        done = run(machine, sys.executable, "-m", "gpustat")

        assert done.returncode != 0
        assert "Driver Not Loaded" in done.stdout + done.stderr
