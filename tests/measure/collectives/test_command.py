"""``gpucheck collectives`` on this host, and with a rendezvous that is invalid."""

import json
import os
import subprocess
import sys

import pytest

from gpucheck.measure.collectives.values import ALL

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck", "collectives"]


def test_two_cpu_ranks_run_every_collective_exactly():
    done = subprocess.run([*GPUCHECK, "--sizes", "4K", "--format", "json"], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["backend"], report["ranks"]) == ("gpucheck.collectives/1", "gloo", 2)
    assert [(r["operation"], r["wrong"], r["checked"]) for r in report["results"]] == [(name, 0, 7) for name in ALL]
    assert all(r["busbw_gb_s"] > 0 for r in report["results"])


def test_invalid_rendezvous_is_wrong_usage_before_any_rank_starts():
    meeting = {"GROUP_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": ""}
    done = subprocess.run(GPUCHECK, env=os.environ | meeting, capture_output=True, text=True, timeout=60)

    assert done.returncode == 64
    assert "MASTER_PORT '': expected a number" in done.stderr
