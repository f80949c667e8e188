"""Several hosts: where they meet is checked before anything is started, and two of them train together."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from gpucheck.train.nodes import meeting, torchrun
from tests.train.conftest import ROOT

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("count", "rank", "rendezvous", "words"),
    [
        (2, 0, "node01", "wanted HOST:PORT"),
        (2, 0, ":29500", "wanted HOST:PORT"),
        (2, 0, "node01:http", "wanted HOST:PORT"),
        (2, 0, "node01:0", "wanted HOST:PORT"),
        (2, 2, "127.0.0.1:29500", "the hosts are 0 to 1"),
        (2, 1, "no-such-host.invalid:29500", "has no address here"),
        (2, 0, "192.0.2.1:29500", "not one of its own"),
    ],
)
def test_a_meeting_place_that_cannot_be_is_refused(count, rank, rendezvous, words):
    with pytest.raises(ValueError, match=words):
        meeting(count, rank, rendezvous)


def test_a_port_in_use_is_refused_on_the_host_that_would_listen():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ValueError, match="the port is in use: choose another"):
            meeting(2, 0, place)
        assert meeting(2, 1, place).rank == 1, "the other hosts are to connect to it"


def test_the_interface_is_the_one_that_leads_to_the_meeting_place():
    assert meeting(2, 1, "127.0.0.1:29500").interface == "lo"


def test_torchrun_says_where_and_who():
    environment = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29400",
    }
    nodes = torchrun(environment)

    assert nodes is not None
    assert (nodes.count, nodes.rank, nodes.port, nodes.hosted) == (2, 1, 29400, True)
    assert torchrun({}) is None
    with pytest.raises(ValueError, match="--nproc-per-node 1"):
        torchrun(environment | {"LOCAL_WORLD_SIZE": "2"})


@pytest.fixture(scope="module")
def two_hosts() -> list[dict[str, Any]]:
    """Two node agents on this machine, meeting over loopback: each starts its own two ranks."""
    place = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "gpucheck", "smoke", "--framework", "torch", "--steps", "10"),
                *("--format", "json", "--timeout", "120"),
                *("--nodes", "2", "--node-rank", str(rank), "--rendezvous", place),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
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
