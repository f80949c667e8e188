"""What goes wrong around copies, each on a simulated machine and each with a finding of its own; docs/measuring.md."""

import json
import os
import subprocess
import sys

import pytest

from tests.measure.engines.test_driver_engine import PAIR, copies, run


@pytest.mark.parametrize(
    ("error", "code", "fix"),
    [
        ("cuInit=805", "measure.mps-not-reached", "get_server_list"),
        ("cuInit=808", "measure.mps-full", "get_server_list"),
        ("cuDevicePrimaryCtxRetain=2", "measure.cuda-no-memory", "free -h"),
        ("cuMemAlloc=2", "measure.cuda-no-memory", "free -h"),
    ],
)
def test_an_engine_that_cannot_start_names_the_reason_and_blames_no_pair(error, code, fix):
    report = run(PAIR, GPUCHECK_CUDA_ERROR=error)
    finding = copies(report)

    assert report["verdict"] == "unknown"
    assert finding["code"] == code
    assert fix in finding["fix"]


LOSES = """
import os, sys
from pathlib import Path
from gpucheck import simulator
from gpucheck.simulator.live import STAND_INS
machine = Path(sys.argv[1])
simulator.make(simulator.load("p100-pcie-x2"), machine, (), STAND_INS)
os.environ["GPUCHECK_SIMULATOR"] = str(machine)
from gpucheck.host import live_source
from gpucheck.measure.bandwidth import BandwidthOptions, Watch
from gpucheck.render.json import to_json
from gpucheck.run.links import bandwidth
def step(step, number):
    if number == 5:
        simulator.switch(machine, ["gpu-lost:gpu=1"])
host = live_source(isolated=True, deadline_s=60.0)
print(to_json(bandwidth(host, BandwidthOptions(depth="quick"), Watch(step=step))))
"""


def test_a_gpu_that_disappears_during_the_copies_is_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOSES, str(tmp_path / "machine")],
        env={**os.environ, "GPUCHECK_SIMULATOR": ""},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr[-2000:]
    first, *others = (f for f in json.loads(done.stdout)["findings"] if f["check"] == "p2p-copies")

    assert (first["verdict"], first["cause"], first["subject"]) == ("fail", "gpu-lost", "gpu:0000:05:00.0")
    assert first["seen"] == "GPU 1 was lost during the copies"
    assert "CUDA error 999" in others[0]["seen"]


def test_verify_without_training_does_not_import_torch(tmp_path):
    """In any of its processes: a package of that name records who imports it; to look for it is not to import it."""
    marker = tmp_path / "imported"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(f"import sys\nopen({str(marker)!r}, 'a').write(' '.join(sys.argv))\n")
    own = {**os.environ, "PYTHONPATH": str(tmp_path), "GPUCHECK_SIMULATOR": ""}
    words = [sys.executable, "-m", "gpucheck", "verify", "--simulate", "p100-pcie-x2", "--skip", "training"]
    done = subprocess.run(
        [*words, "--format", "json"], env=own, capture_output=True, text=True, timeout=280, check=False
    )

    assert '"p2p-bandwidth"' in done.stdout, done.stderr
    assert not marker.exists(), marker.read_text()
    subprocess.run([sys.executable, "-c", "import torch"], env=own, check=True)
    assert marker.exists()
