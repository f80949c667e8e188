"""Hosts with fewer GPUs than equal hosts: a GPU that is gone from the bus is no finding of its host."""

import pytest

from gpucheck.model import Partial, Verdict
from tests.fleet.reports import bad, merged, report, topology

BOARD = {"board": ("SYS-420GP",)}
SHARE = Partial(usable=("0000:00:00.0",), hidden=("0000:01:00.0",), by="device-cgroup")


def host(name, gpus, **changes):
    fields = {"attributes": BOARD, "measurements": {}} | changes
    return report(name, topology=topology(gpus), **fields)


def few(*odd, full=6):
    fleet = merged(*(host(f"n{n}", 8) for n in range(full)), *odd)
    return {row.host: row.problems[0].seen for row in fleet.hosts if row.verdict is Verdict.WARN}, fleet


def test_a_host_with_fewer_gpus_than_equal_hosts_is_no_pass():
    named, fleet = few(host("n9", 7))

    assert named == {"n9": 7}
    assert fleet.hosts[-1].problems[0].code == "fleet.fewer-gpus"
    (drift,) = fleet.drift
    assert (drift.attribute, [value.value for value in drift.values]) == ("gpus", ["8", "7"])


@pytest.mark.parametrize(
    "odd",
    [
        [host("n9", 7, attributes={"board": ("another",)})],
        [host("n9", 7, attributes={})],  # as in reports of compute, of the GPUs that were chosen
        [host("n9", 1, partial=SHARE)],
        [host(f"m{n}", 4) for n in range(3)],  # two kinds of hosts
        [host("n9", 9)],
    ],
    ids=["another-board", "no-board", "a-session", "two-kinds", "more"],
)
def test_other_hosts_are_not_named(odd):
    assert few(*odd)[0] == {}


def test_nothing_is_said_twice():
    assert few(host("n9", 7, findings=(bad("inventory", "gpu-lost"),)))[0] == {}
    assert few(host("n9", 7), full=2)[0] == {}
