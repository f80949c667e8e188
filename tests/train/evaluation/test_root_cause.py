"""The failing rank, from the ends of all ranks."""

import signal

import msgspec
import pytest

from gpucheck.processes.ranks.process import RankEnd
from gpucheck.processes.ranks.run_directory import RankError
from gpucheck.processes.ranks.supervisor import Ending
from gpucheck.train.evaluation.root_cause import find_failing_rank
from gpucheck.train.progress import Position, position_of
from gpucheck.train.spec import SmokeOptions

OPTIONS = SmokeOptions()
NOW = 1000.0


def at(phase, step=None, age=30.0):
    position = Position(phase=phase, step=step, device="cuda:0", bus_id=None, entered=NOW - age)
    return msgspec.json.encode(position)


def raised(when, kind="RuntimeError", message="x", missing=None):
    return RankError(type=kind, message=message, missing=missing, frames=("a.py:1 in f",), raised=when)


def failure_of(*ranks, reason="broken", unkillable=()):
    ends = tuple(RankEnd(rank=number, **values) for number, values in enumerate(ranks))
    return find_failing_rank(Ending(reason, ends, 60.0, NOW, unkillable), OPTIONS, ())


def test_the_abort_of_nccls_watchdog_is_a_consequence():
    """A peer that raised comes first; the rank that SIGABRT ended only answered it."""
    answer = failure_of(
        {"progress": at("allreduce", 3), "status": -signal.SIGABRT},
        {"progress": at("forward", 3), "status": 1, "error": raised(5.0)},
    )
    assert (answer.kind, answer.rank) == ("raised", 1)


def test_an_abort_that_nobody_explains_is_a_death():
    answer = failure_of(
        {"progress": at("allreduce", 3), "status": None, "process_state": "S"},
        {"progress": at("forward", 3), "status": -signal.SIGABRT},
    )
    assert (answer.kind, answer.rank, answer.signal) == ("died", 1, "SIGABRT")


def test_of_two_exceptions_the_earlier_counts():
    answer = failure_of(
        {"progress": at("allreduce", 3), "status": 1, "error": raised(7.0, "ConnectionError")},
        {"progress": at("forward", 3), "status": 1, "error": raised(6.9, "ValueError")},
    )
    assert (answer.rank, answer.error_type) == (1, "ValueError")


def test_a_rank_in_an_uninterruptible_call_is_the_one_that_hangs():
    answer = failure_of(
        {"progress": at("forward", 3), "process_state": "S"},
        {"progress": at("allreduce", 3), "process_state": "D"},
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
    answer = failure_of(
        {"progress": ahead, "process_state": "S"}, {"progress": behind, "process_state": "S"}, reason="deadline"
    )

    assert (answer.kind, answer.rank, answer.phase, answer.step) == (
        "hang",
        1,
        position_of(behind).phase,
        position_of(behind).step,
    )


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
        # A busy machine: 26 steps took most of a minute, so three seconds without a new one are no hang.
        (at("forward", 26, age=3.0), "deadline", "timeout"),
        (at("forward", 26, age=20.0), "deadline", "hang"),
    ],
)
def test_slow_is_told_from_stuck_by_the_age_of_the_newest_phase(position, reason, kind):
    rank = {"progress": position, "process_state": "S"}

    assert failure_of(rank, rank, reason=reason).kind == kind


def test_a_framework_that_compiles_its_first_step_is_slow_and_not_stuck():
    """TensorFlow does; torch makes its first step at once."""
    ranks = (RankEnd(rank=0, progress=at("step", 1), process_state="S"),)
    kinds = {
        framework: find_failing_rank(
            Ending("deadline", ranks, 60.0, NOW), SmokeOptions(framework=framework, strategy="x"), ()
        ).kind
        for framework in ("tensorflow", "torch")
    }
    assert kinds == {"tensorflow": "timeout-start", "torch": "hang"}


def test_a_missing_package_outranks_all_that_follows_from_it():
    answer = failure_of(
        {"progress": at("init"), "status": -signal.SIGKILL},
        {"progress": at("import"), "status": 1, "error": raised(1.0, "ModuleNotFoundError", "No module", "numpy")},
    )
    assert (answer.kind, answer.missing) == ("missing-package", "numpy")
