"""docs/integrations: the scripts are run against simulated machines, the cluster's own commands are played."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.test_statuses import IDLE, PAGES, SCONTROL

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for path in sorted(PAGES.rglob("*")) if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")]
# Ours on a simulated machine.
GPUCHECK = (
    f'#!/bin/sh\nexec {sys.executable} -m gpucheck "$@" --simulate p100-pcie-x2 --fault pcie-width:gpu=1,width=8\n'
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_clean_posix_shell(script):
    assert os.access(script, os.X_OK)
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    done = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", script], capture_output=True, text=True, check=False
    )

    assert done.stdout == ""


def test_a_broken_node_is_drained_with_the_finding_as_the_reason_and_starts_no_job(tmp_path):
    for name, text in {"gpucheck": GPUCHECK, "scontrol": SCONTROL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NODE": IDLE,
        "NOTES": str(tmp_path / "notes"),
        "SLURMD_NODENAME": "n1",
        "GPUCHECK_SLURM_POLICY": str(PAGES / "slurm" / "gpucheck-policy"),
        "GPUCHECK_SLURM_RESULTS": str(tmp_path / "results"),
    }
    reason = "gpucheck:pcie-width-reduced g1 8/16 contact-support SIMULATED"
    for script, status in (("gpucheck-health", 0), ("gpucheck-prolog", 1)):
        done = subprocess.run([PAGES / "slurm" / script], env=environment, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (status, "")
        assert (tmp_path / "notes").read_text() == f"update NodeName=n1 State=DRAIN Reason={reason}\n"
        (tmp_path / "notes").unlink()
    assert f"no job is started: {reason}" in done.stderr
