"""Which answers of a node's quick checks let it take the job."""

import json

import pytest

from gpucheck.isolate import gate
from gpucheck.isolate.launch import Ended, Launcher, Peer
from gpucheck.isolate.search import Outcome

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
