"""The two provisioned hosts of the lab as one job, started over SSH as an operator starts it."""

import pytest

from tests.lab.e2e import HOSTS, INVENTORY
from tests.lab.shell import Shell

pytestmark = pytest.mark.lab


@pytest.fixture
def shell(first):
    assert first.status == 0, first.text
    return Shell(INVENTORY.parent)


def test_both_hosts_train_as_one(shell):
    """Four ranks over the network between the hosts; each host reports all of them, and the same of them."""
    smoke = "smoke --framework torch --steps 10 --format json"
    answers = shell.on_all(29500, *smoke.split())

    assert [answer["host"] for answer in answers] == list(HOSTS)
    one, other = (answer["outcomes"][0] for answer in answers)
    assert one["world_size"] == other["world_size"] == 4
    assert one["backend"] == "gloo"
    assert one["summed_steps"] == 10
    assert one["references"][0]["max_abs_difference"] < 1e-6
    assert one["checkpoints"] == other["checkpoints"]
    assert {len(set(check["parameters"])) for check in one["checkpoints"]} == {1}, "all four ranks hold the same"


def test_collectives_over_both_hosts_are_exact(shell):
    collectives = "collectives --sizes 64K --format json"
    answers = shell.on_all(29501, *collectives.split())

    assert [answer["host"] for answer in answers] == list(HOSTS)
    assert all((answer["ranks"], answer["nodes"], answer["verdict"]) == (4, 2, "pass") for answer in answers)
    assert {(row["checked"], row["wrong"]) for answer in answers for row in answer["results"]} == {(7, 0)}
    assert answers[0]["results"] == answers[1]["results"], "the slowest rank's time counts, on every host"
