"""Tests on nodes: real processes behind a stand-in for ssh, and what is made of their answers."""

import json
import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from gpucheck.isolate import launch
from gpucheck.isolate.launch import (
    AllocationEndedError,
    Ended,
    Launcher,
    Peer,
    check_allocation,
    read_test,
    run_round,
)
from gpucheck.isolate.run import launcher_of
from gpucheck.model.isolation import GroupTest
from tests.isolate.conftest import BLANK
from tests.shared import END_S


def launcher(*names: str, **options: object) -> Launcher:
    peers = {name: Peer(name, (name,)) for name in names}
    return Launcher(peers=peers, slurm=False, **{"seconds": 5.0, "start_s": 1.0, **options})  # type: ignore[arg-type]


def run(of: Launcher, *tests: tuple[str, ...]) -> list[GroupTest]:
    results = dict(run_round(of, list(tests), 0))
    return [results[at] for at in range(len(tests))]


def processes(nodes: Path) -> list[str]:
    """Processes whose environment names these nodes."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile
            if f"NODES={nodes}".encode() in each.read_bytes() and each.parent.name != str(os.getpid()):
                found.append((each.parent / "cmdline").read_text())
    return found


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        ("good", "done"),
        ("slow", "done"),
        ("wrong", "wrong"),
        ("cut", "unreadable"),
        ("silent", "silent"),
        ("port", "done"),
    ],
)
@pytest.mark.parametrize("slurm", [False, True], ids=["ssh", "srun"])
def test_how_a_test_ends(stand_ins, state, ended, slurm):
    if slurm and state == "silent":
        pytest.skip("srun does not say which node is silent")
    stand_ins(a=state)
    good, result = run(launcher("a", "b", "c", "d")._replace(slurm=slurm), ("c", "d"), ("a", "b"))
    assert (good.state, result.state) == ("done", ended)
    assert good.busbw_gb_s == 390.0
    assert result.busbw_gb_s == {"slow": 200.0, "good": 390.0, "port": 390.0}.get(state)


@pytest.mark.slow
def test_nodes_that_hang_are_ended_at_the_deadline(stand_ins):
    nodes = stand_ins(a="hangs")
    good, hung = run(launcher("a", "b", "c", "d", seconds=1.0), ("c", "d"), ("a", "b"))
    assert (good.state, hung.state) == ("done", "hung")
    assert not processes(nodes)


def test_a_test_does_not_wait_for_the_peers_of_a_node_that_failed(stand_ins, monkeypatch):
    monkeypatch.setattr(launch, "ALONE_S", 0.2)
    nodes = stand_ins(a="dies")
    (result,) = run(launcher("a", "b", seconds=600.0), ("a", "b"))
    assert result.state == "failed"
    assert not processes(nodes)


@pytest.mark.parametrize("state", ["hangs", "stops"])
def test_nothing_is_left_where_a_search_ends_early(stand_ins, state):
    nodes = stand_ins(a=state)
    running = run_round(launcher("a", "b", "c", "d", seconds=100.0), [("a", "b"), ("c", "d")], 0)
    assert next(running)[1].state == "done"
    assert processes(nodes)
    running.close()
    until = time.monotonic() + END_S
    while processes(nodes) and time.monotonic() < until:
        time.sleep(0.05)
    assert not processes(nodes)


def test_each_card_alone(stand_ins):
    nodes = stand_ins(a="card")
    (result,) = run(launcher("a", "b", nics=("mlx5_0", "mlx5_1")), ("a", "b"))
    assert (result.busbw_gb_s, result.nics) == (200.0, {"mlx5_0": 390.0, "mlx5_1": 200.0})
    assert {
        line.split()[2] for line in (nodes / "log").read_text().splitlines() if line.count(" ") == 2 and "=" in line
    }


ROW = {"operation": "all_reduce", "variant": "as is", "time_us": 5.0, "busbw_gb_s": 9.0}
WORDS = {"check": "collectives", "subject": "host", "why": "x", "fix": "x"}
WAITS = WORDS | {"verdict": "unknown", "code": "measure.ranks-wait"}
BOTH = [ROW | {"size_bytes": 1, "busbw_gb_s": 1.0}, ROW | {"size_bytes": 2}]


@pytest.mark.parametrize(
    ("output", "state"),
    [
        (BLANK | {"results": BOTH}, "done"),
        (BLANK | {"results": BOTH[:1]}, "unreadable"),
        (BLANK | {"results": []}, "unreadable"),
        (BLANK | {"results": BOTH, "nodes": 3}, "unreadable"),
        (BLANK | {"results": BOTH, "schema": "gpucheck.report/1"}, "unreadable"),
        (BLANK | {"results": [BOTH[0] | {"wrong": 1}, BOTH[1]]}, "wrong"),
        (BLANK | {"results": BOTH, "findings": [WAITS]}, "hung"),
        (BLANK | {"findings": [WAITS | {"code": "measure.rank-failed", "seen": "rank 1"}]}, "failed"),
        ([], "unreadable"),
        ("x", "unreadable"),
    ],
)
def test_what_a_report_says(output, state):
    """A report that is cut off, of another run, or without one of the sizes states nothing."""
    ended = [Ended("a", 0, json.dumps(output).encode(), b""), Ended("b", 0, b"", b"")]
    assert read_test(("a", "b"), ended).state == state
    cut = json.dumps(output).encode()[:-1]
    assert read_test(("a", "b"), [ended[0]._replace(output=cut), ended[1]]).state == "unreadable"


@pytest.mark.parametrize(
    ("status", "errors", "state"),
    [(None, b"", "hung"), (124, b"", "hung"), (127, b"gpucheck: not found", "failed"), (255, b"no route", "silent")],
)
def test_what_no_report_says(status, errors, state):
    ended = [Ended("a", 0, b"", b""), Ended("b", status, b"", errors)]
    assert read_test(("a", "b"), ended).state == state


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "needs two"),
        (["a", "b", "a"], "a: given twice"),
        (["a", "-oProxyCommand=x"], "not the name of one host"),
        (["a", "b;reboot"], "not the name of one host"),
        (["a", "b[1-3]"], "not the name of one host"),
        (["a", ""], "not the name of one host"),
        ([], "Give --nodes or --inventory"),
    ],
)
def test_nodes_that_cannot_be_meant(names, message):
    with pytest.raises(ValueError, match=message):
        launcher_of(names, None, {})


def test_an_inventory_states_how_nodes_are_reached(tmp_path):
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "[gpu]\nn1 ansible_host=10.0.0.1 ansible_user=u ansible_port=2222\nn2\n[all:vars]\n"
        "ansible_ssh_common_args='-o ProxyJump=bastion'\n[other]\nn3\n"
    )
    found = launcher_of((), inventory, {})
    jump = ("-o", "ProxyJump=bastion")
    assert not found.slurm
    assert found.peers == {
        "n1": Peer("10.0.0.1", (*jump, "-p", "2222", "-l", "u", "--", "10.0.0.1")),
        "n2": Peer("n2", (*jump, "--", "n2")),
    }
    assert set(launcher_of(("n3", "n1"), inventory, {}).peers) == {"n3", "n1"}
    with pytest.raises(ValueError, match="n9: not in this inventory"):
        launcher_of(("n9", "n1"), inventory, {})


@pytest.mark.parametrize(
    ("script", "is_ended"),
    [
        ("echo RUNNING", False),
        ("echo SUSPENDED", False),
        ("echo COMPLETING", True),
        ("true", True),  # scancel a moment ago, as Slurm 22.05 prints it
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", True),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1", False),
        ("exit 127", False),
    ],
)
def test_an_allocation_ends_only_as_slurm_states_it(tmp_path, monkeypatch, script, is_ended):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for slurm in (True, False):
        with pytest.raises(AllocationEndedError) if is_ended and slurm else nullcontext():
            check_allocation(Launcher(peers={}, slurm=slurm))
