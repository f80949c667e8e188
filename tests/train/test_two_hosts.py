"""Two hosts, as two processes of this one, train together over loopback."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.train.conftest import ROOT, free_port

# Two hosts of the lab train as one in make test.
pytestmark = [pytest.mark.slow, pytest.mark.more]


@pytest.fixture(scope="module")
def two_hosts() -> list[dict[str, Any]]:
    """Two node agents on this machine, meeting over loopback: each starts its own two ranks."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    environment |= {"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "gpucheck", "smoke", "--framework", "torch", "--steps", "10"),
                *("--format", "json", "--timeout", "120"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | {"GROUP_RANK": str(rank)},
        )
        for rank in (1, 0)
    ]
    answers = [agent.communicate(timeout=200) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], answers
    return [json.loads(out) for out, _ in answers]


def test_two_hosts_train_as_one_and_both_report_all_ranks(two_hosts):
    for answer in two_hosts:
        (outcome,) = answer["outcomes"]
        assert answer["verdict"] == "pass"
        assert outcome["world_size"] == 4
        assert len(outcome["checkpoints"][0]["parameters"]) == 4
        assert outcome["references"][0]["max_abs_difference"] < 1e-6
        assert outcome["summed_steps"] == 10


def test_both_hosts_saw_the_same_training(two_hosts):
    one, other = (answer["outcomes"][0] for answer in two_hosts)
    assert one["checkpoints"] == other["checkpoints"]
