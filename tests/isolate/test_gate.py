"""Which answers of a node's quick checks let it take the job."""

import json
import time

import pytest

from gpucheck.isolate import gate
from gpucheck.isolate.launch import Ended, Launcher, Peer
from gpucheck.isolate.search import Outcome
from gpucheck.model.isolation import GroupTest

GPUS = {"gpus": [{"index": 0}]}
FAULT = {"verdict": "fail", "check": "nvlink", "seen": 17, "because_of": None}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"verdict": "pass", "topology": GPUS}, None),
        ({"verdict": "unknown", "topology": GPUS}, None),  # what needs root
        ({"verdict": "fail", "topology": GPUS, "findings": [FAULT]}, "nvlink: 17"),
        # timeout(1) ended it in a call that does not return: the report is that of the checks before.
        ({"verdict": "unknown", "topology": GPUS, "interrupted": True}, "its quick checks did not end in time"),
        ({"verdict": "unknown", "topology": None}, "no GPU was read"),
    ],
)
def test_a_node_that_was_not_looked_at_does_not_pass(monkeypatch, answer, why):
    ended = Ended("n0", 3, json.dumps(answer).encode(), b"")
    monkeypatch.setattr(gate, "run_on_each", lambda *_: {"n0": ended})
    vetted = gate.vet(Launcher(peers={"n0": Peer("n0")}, slurm=False), 60.0)

    assert vetted.bad == ({} if why is None else {"n0": why})


def test_a_node_with_fewer_gpus_than_most_is_left_out(monkeypatch):
    """A GPU that is gone from the bus is no finding of its node: only the others show that it should be there."""
    gpus = {f"n{n}": [{"name": "H100"}] * count for n, count in enumerate((8, 8, 7))}
    answers = {
        name: Ended(name, 0, json.dumps({"verdict": "pass", "topology": {"gpus": own}}).encode(), b"")
        for name, own in gpus.items()
    }
    monkeypatch.setattr(gate, "run_on_each", lambda *_: answers)
    monkeypatch.setattr(gate, "_pairs", lambda *_: (Outcome(), set(gpus)))
    launcher = Launcher(peers={name: Peer(name) for name in gpus}, slurm=False)

    assert gate.vet(launcher, 60.0).bad == {"n2": "7 x H100, most nodes have 8 x H100"}
    del answers["n1"]
    assert gate.vet(launcher._replace(peers={"n0": Peer("n0"), "n2": Peer("n2")}), 60.0).bad == {}


@pytest.mark.parametrize("slow", ["n0", "n1", "n2"])
def test_of_three_nodes_the_slow_one_is_found_wherever_it_is(monkeypatch, slow):
    """Two tests that share a node are equally slow, and show no difference."""

    def tested(_, tests, number):
        rates = {test: 20.0 if slow in test else 40.0 for test in tests}
        return enumerate(GroupTest(nodes=test, state="done", busbw_gb_s=rate) for test, rate in rates.items())

    monkeypatch.setattr(gate, "run_round", tested)
    launcher = Launcher(peers={}, slurm=False)
    outcome, _ = gate._pairs(launcher, ["n0", "n1", "n2"], time.monotonic() + 90, lambda _: None)

    assert outcome.nodes == (slow,)
