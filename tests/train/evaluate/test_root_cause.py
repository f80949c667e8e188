"""Who is to blame, from the ends of all ranks."""

import signal

import pytest

from gpucheck.train.evaluate.root_cause import blame
from gpucheck.train.process import RankEnd
from gpucheck.train.progress import Position
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.supervisor import Ending
from gpucheck.train.workplace import RankError

OPTIONS = SmokeOptions()
NOW = 1000.0


def at(phase, step=None, age=30.0):
    return Position(phase=phase, step=step, device="cuda:0", bus_id=None, entered=NOW - age)


def raised(when, kind="RuntimeError", message="x", missing=None):
    return RankError(type=kind, message=message, missing=missing, frames=("a.py:1 in f",), raised=when)


def judge(*ranks, reason="broken", unkillable=()):
    ends = tuple(RankEnd(rank=number, **values) for number, values in enumerate(ranks))
    return blame(Ending(reason, ends, 60.0, NOW, unkillable), OPTIONS, ())


def test_the_abort_of_nccls_watchdog_is_a_consequence():
    """A peer that raised comes first; the rank that SIGABRT ended only answered it."""
    answer = judge(
        {"position": at("allreduce", 3), "status": -signal.SIGABRT},
        {"position": at("forward", 3), "status": 1, "error": raised(5.0)},
    )
    assert (answer.kind, answer.rank) == ("raised", 1)


def test_an_abort_that_nobody_explains_is_a_death():
    answer = judge(
        {"position": at("allreduce", 3), "status": None, "process_state": "S"},
        {"position": at("forward", 3), "status": -signal.SIGABRT},
    )
    assert (answer.kind, answer.rank, answer.signal) == ("died", 1, "SIGABRT")


def test_of_two_exceptions_the_earlier_counts():
    answer = judge(
        {"position": at("allreduce", 3), "status": 1, "error": raised(7.0, "ConnectionError")},
        {"position": at("forward", 3), "status": 1, "error": raised(6.9, "ValueError")},
    )
    assert (answer.rank, answer.error_type) == (1, "ValueError")


def test_a_rank_in_an_uninterruptible_call_is_the_one_that_hangs():
    answer = judge(
        {"position": at("forward", 3), "process_state": "S"},
        {"position": at("allreduce", 3), "process_state": "D"},
        reason="stalled",
        unkillable=(1,),
    )
    assert (answer.kind, answer.rank, answer.process_state) == ("hang", 1, "D")
    assert "rank 1 could not be ended, not even by SIGKILL" in answer.evidence


@pytest.mark.parametrize(
    ("behind", "ahead"),
    [
        (at("init"), at("load", 1)),
        (at("load", 4), at("load", 5)),
        (at("forward", 4), at("allreduce", 4)),
        (at("check", 40), at("reference", 2)),
    ],
)
def test_the_rank_furthest_behind_is_the_one_that_hangs(behind, ahead):
    answer = judge(
        {"position": ahead, "process_state": "S"}, {"position": behind, "process_state": "S"}, reason="deadline"
    )

    assert (answer.kind, answer.rank, answer.phase, answer.step) == ("hang", 1, behind.phase, behind.step)


@pytest.mark.parametrize(
    ("position", "reason", "kind"),
    [
        (at("start"), "deadline", "timeout-start"),
        (at("import"), "deadline", "timeout-start"),
        (at("device", age=5.0), "deadline", "timeout-start"),
        (at("device", age=15.0), "deadline", "hang"),
        (at("forward", 3, age=1.0), "deadline", "timeout"),
        (at("forward", 3, age=3.0), "deadline", "hang"),
        (at("forward", 3, age=1.0), "stalled", "hang"),
    ],
)
def test_slow_is_told_from_stuck_by_the_age_of_the_newest_phase(position, reason, kind):
    rank = {"position": position, "process_state": "S"}

    assert judge(rank, rank, reason=reason).kind == kind


def test_a_framework_that_compiles_its_first_step_is_slow_and_not_stuck():
    """TensorFlow does; torch makes its first step at once."""
    ranks = (RankEnd(rank=0, position=at("step", 1), process_state="S"),)
    kinds = {
        framework: blame(Ending("deadline", ranks, 60.0, NOW), SmokeOptions(framework=framework, strategy="x"), ()).kind
        for framework in ("tensorflow", "torch")
    }
    assert kinds == {"tensorflow": "timeout-start", "torch": "hang"}


def test_a_missing_package_outranks_all_that_follows_from_it():
    answer = judge(
        {"position": at("init"), "status": -signal.SIGKILL},
        {"position": at("import"), "status": 1, "error": raised(1.0, "ModuleNotFoundError", "No module", "numpy")},
    )
    assert (answer.kind, answer.missing) == ("missing-package", "numpy")
