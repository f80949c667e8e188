"""The tests on real GPUs (make test-gpu) run on simulated machines here, with no package that they do not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import END_S, sampled

ROOT = Path(__file__).parents[3]
# Of the development environment; a Python on a GPU host has gpucheck's own packages and pytest.
NOT_NEEDED = ("ansible", "cupy", "docker", "hypothesis", "numpy", "torch", "xdist")
HIDDEN = f"""
import sys
class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {NOT_NEEDED}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden)
"""
NVBANDWIDTH = """#!/bin/sh
echo '{"nvbandwidth": {"testcases": [{"bandwidth_matrix": [["N/A", "%s"], ["%s", "N/A"]]}]}}'
"""
# The parts of gpucheck record --full that these tests read.
RECORD = """
import sys
from gpucheck.cli import main
from gpucheck.run import full_record
named = [one for one in full_record.PROGRAMS if one.name in ("cuda", "copies")]
full_record.PROGRAMS = tuple(one._replace(limit_s=900) for one in named)
main(["record", "--full", "--yes", "--within", "1800", "-o", sys.argv[1]])
"""
WITH_TORCH = (
    *(
        f"--deselect=tests/gpu/test_compute.py::test_the_{rate}_is_that_of_a_second_measurement{same}"
        for rate, same in (("matrix_rate", "_at_the_same_clock"), ("copy_rate_of_memory", ""))
    ),
    "--deselect=tests/gpu/test_compute.py::test_cublas_alone_computes_what_torch_computes_and_as_fast",
    "--ignore=tests/gpu/test_train.py",
    "--deselect=tests/gpu/test_two_gpus.py::test_collectives_between_the_gpus_are_right",
)


@pytest.mark.parametrize(
    ("profile", "pair", "skipped"), sampled([("h200-x1", "0", True), ("a100-sxm-x4", "91.97", False)], (1,))
)
def test_they_pass_on_simulated_machines(activate, tmp_path, profile, pair, skipped):
    """With four GPUs none is skipped."""
    machine = activate(profile)
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    program = tmp_path / "nvbandwidth"
    program.write_text(NVBANDWIDTH % (pair, pair))
    program.chmod(0o755)
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    environment = {
        **os.environ,
        "GPUCHECK_SIMULATOR": str(machine),
        "GPUCHECK_RECORDING": str(tmp_path / "recording.json.gz"),
        "LD_LIBRARY_PATH": str(machine / "lib"),
        "PYTHONPATH": str(tmp_path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    record = [sys.executable, "-c", RECORD, environment["GPUCHECK_RECORDING"]]
    subprocess.run(record, cwd=ROOT, env=environment, check=True)
    done = subprocess.run(
        [*words, *WITH_TORCH, f"--basetemp={tmp_path / 'own'}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert ("skipped" in done.stdout) == skipped, done.stdout[-500:]
