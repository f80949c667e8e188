"""The two provisioned hosts of the lab as one job, started over SSH as an operator starts it."""

import json
import subprocess

import pytest
import yaml

from tests.lab.e2e import HOSTS, INVENTORY

pytestmark = pytest.mark.lab
GPUCHECK = "/opt/gpucheck/bin/gpucheck"


@pytest.fixture
def on_all(first):
    """Run gpucheck on every host at once, which meet at this port of the first: what each reports, as JSON."""
    assert first.status == 0, first.text
    group = yaml.safe_load(INVENTORY.read_text())["gpu"]
    variables = group["vars"]
    addresses = [row["ansible_host"] for child in group["children"].values() for row in child["hosts"].values()]
    meeting = f"env GROUP_WORLD_SIZE={len(addresses)} MASTER_ADDR={addresses[0]}".split()
    ssh = ["ssh", "-i", variables["ansible_ssh_private_key_file"], *variables["ansible_ssh_common_args"].split()]
    ssh += ["-o", "BatchMode=yes"]

    def run(port, *command):
        started = []
        for rank, address in enumerate(addresses):
            words = [*ssh, f"{variables['ansible_user']}@{address}", *meeting, f"MASTER_PORT={port}"]
            words += [f"GROUP_RANK={rank}", "timeout", "600", GPUCHECK, *command]
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        said = [process.communicate() for process in started]
        assert [process.returncode for process in started] == [0] * len(started), said
        return [json.loads(out) for out, _ in said]

    return run


def test_both_hosts_train_as_one(on_all):
    """Four ranks over the network between the hosts; each host reports all of them, and the same of them."""
    smoke = "smoke --framework torch --steps 10 --format json"
    answers = on_all(29500, *smoke.split())

    assert [answer["host"] for answer in answers] == list(HOSTS)
    one, other = (answer["outcomes"][0] for answer in answers)
    assert one["world_size"] == other["world_size"] == 4
    assert one["backend"] == "gloo"
    assert one["summed_steps"] == 10
    assert one["references"][0]["max_abs_difference"] < 1e-6
    assert one["checkpoints"] == other["checkpoints"]
    assert {len(set(check["parameters"])) for check in one["checkpoints"]} == {1}, "all four ranks hold the same"


def test_collectives_over_both_hosts_are_exact(on_all):
    collectives = "collectives --sizes 64K --format json"
    answers = on_all(29501, *collectives.split())

    assert [answer["host"] for answer in answers] == list(HOSTS)
    assert all((answer["ranks"], answer["nodes"], answer["verdict"]) == (4, 2, "pass") for answer in answers)
    assert {(row["checked"], row["wrong"]) for answer in answers for row in answer["results"]} == {(7, 0)}
    assert answers[0]["results"] == answers[1]["results"], "the slowest rank's time counts, on every host"
