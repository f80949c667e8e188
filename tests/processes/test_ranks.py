"""Ranks without a framework: how a run ends, what is known of each rank, and that nothing is left."""

import os
import time

import pytest

from gpucheck.processes.contention import Waiting
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.supervisor import Ending, rank_specs, supervise
from tests.processes.rank_program import Report, ranks
from tests.train.conftest import ROOT, nothing_left


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run two ranks; afterwards no process and no file of them may be left."""
    with nothing_left(tmp_path, monkeypatch) as marked:

        def go(failure: str = "", timeout_s: float = 20.0, **more) -> Ending[Report]:
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **marked.environment}
            return supervise(ranks(failure, timeout_s, **more), environment)

        yield go


def test_ranks_that_finish_leave_their_reports(run):
    ending = run()

    assert ending.reason == "finished"
    assert [end.report for end in ending.ranks] == [Report(0, 2), Report(1, 2)]
    assert ending.ranks[0].progress == b'"second step"'


@pytest.mark.parametrize(("waited", "least"), [(1.5, 2.5), (1e6, 4.0)])
def test_time_without_a_processor_is_no_part_of_the_limit_up_to_a_bound(run, monkeypatch, waited, least):
    monkeypatch.setattr(Waiting, "look", lambda self, now: waited)

    ending = run("hang", timeout_s=1.0)

    assert ending.reason == "deadline"
    assert ending.seconds >= least


@pytest.mark.parametrize(("share", "least"), [(0.5, 1.6), (10.0, 3.2)])
def test_ranks_that_wait_for_a_processor_stand_still_for_longer(run, monkeypatch, share, least):
    """On a busy machine healthy ranks were called stuck. share: of the time."""
    monkeypatch.setattr(Waiting, "look", lambda self, now: share * now)
    begins: dict[tuple[bytes, ...], float] = {}

    def is_stalled(lines, now):
        return now - begins.setdefault(tuple(lines), now) > 0.8

    ending = run("hang", timeout_s=60.0, is_stalled=is_stalled)

    assert ending.reason == "stalled"
    assert ending.seconds >= least


def test_report_of_another_rank_is_no_success(run):
    """Other ways to fail are in tests/train/test_failing_ranks.py."""
    ending = run("other")
    end = ending.ranks[1]

    assert (ending.reason, end.status, end.report) == ("broken", 0, None)
    assert "is that of rank 0" in end.unreadable


def test_rank_that_hangs_ends_at_the_deadline_with_its_stack(run):
    """It ignores SIGTERM."""
    started = time.monotonic()
    ending = run("hang", timeout_s=2.0)
    end = ending.ranks[1]

    assert (ending.reason, end.status, ending.unkillable) == ("deadline", None, ())
    assert any("rank_program.py" in frame and "in fail" in frame for frame in end.stack)
    assert end.output == ("about to hang",)
    assert time.monotonic() - started < 15


def test_program_decides_when_ranks_are_stalled(run):
    ending = run("hang", is_stalled=lambda progress, now: progress == [b'"second step"'] * 2)

    assert ending.reason == "stalled"


def test_ranks_are_numbered_over_all_hosts():
    second = Nodes(count=2, rank=1, host="node01", port=29500)
    specs = rank_specs(ranks(processes=4, nodes=second), "/tmp/x")

    assert [(spec.rank, spec.local_rank, spec.processes) for spec in specs] == [(2, 0, 4), (3, 1, 4)]
    assert {spec.parent_pid for spec in specs} == {os.getpid()}
