"""gpustat and nvitop from PyPI run on every simulated machine and show its GPUs."""

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

GPUS = {name: build(simulator.load(name), DriverState()).gpus for name in simulator.profile_names()}


def run(machine: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "GPUCHECK_SIMULATOR": str(machine),
        "LD_LIBRARY_PATH": str(machine / "lib"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = [sys.executable, "-m", *command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "profile",
    sampled(
        [name for name, gpus in GPUS.items() if gpus], lambda number, name: number % 8 == 0 and len(GPUS[name]) <= 16
    ),
)
def test_clients_show_the_gpus_of_the_machine(activate, profile):
    """One GPU is in use. MIG devices: test_mig.py."""
    machine = activate(profile, ["busy-gpu:gpu=0,memory=1000"])
    first, *others = wanted = [(gpu.model.name, gpu.uuid, gpu.model.memory_mib) for gpu in GPUS[profile]]
    listed, screen = run(machine, "gpustat", "--json"), run(machine, "nvitop", "--once", "--ascii")
    rows = json.loads(listed.stdout)["gpus"]

    assert [(row["name"], row["uuid"], row["memory.total"]) for row in rows] == wanted
    assert rows[0]["processes"][0]["gpu_memory_usage"] == 1000
    assert [row["processes"] for row in rows[1:]] == [[]] * len(others)
    assert first[0] in run(machine, "gpustat", "--no-color", "-cp").stdout
    assert screen.returncode == 0, screen.stderr
    assert screen.stdout.count(GPUS[profile][0].function.bus_id.upper()) >= 1


def test_clients_without_a_driver_say_so(activate):
    """The machine without GPUs, and one whose module is not loaded."""
    for machine in (activate("no-gpu"), activate("p100-pcie-x2", ["driver-not-loaded"])):
        done = run(machine, "gpustat")

        assert done.returncode != 0
        assert "Driver Not Loaded" in done.stdout + done.stderr
