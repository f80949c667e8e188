"""``gpucheck collectives`` on this host."""

import json
import subprocess
import sys

import pytest

from gpucheck.measure.collectives.rank import ALL
from tests.shared import END_S

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck", "collectives"]


def test_two_cpu_ranks_run_every_collective_exactly():
    done = subprocess.run(
        [*GPUCHECK, "--sizes", "4K", "--format", "json"], capture_output=True, text=True, timeout=END_S
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["backend"], report["ranks"]) == ("gpucheck.collectives/1", "gloo", 2)
    assert [(r["operation"], r["wrong"], r["checked"]) for r in report["results"]] == [(name, 0, 7) for name in ALL]
    assert all(r["busbw_gb_s"] > 0 for r in report["results"])
