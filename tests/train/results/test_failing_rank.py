"""Which rank failed, from how the ranks of a run ended."""

import signal
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from gpucheck.processes.ranks.rank import RankError
from gpucheck.processes.ranks.supervisor import Ending, RankEnd
from gpucheck.run.steps.train import evaluated
from gpucheck.train.progress import Position, position_of
from gpucheck.train.results.failing_rank import find_failing_rank
from gpucheck.train.spec import Rejected, SmokeOptions
from gpucheck.train.torch.rank import refuse

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


ABORT, KILL = -signal.SIGABRT, -signal.SIGKILL
NO_NUMPY = raised(1.0, "ModuleNotFoundError", "No module", "numpy")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # The abort of NCCL's watchdog only answers the peer that raised; without one it is a death.
        ({"status": ABORT}, {"status": 1, "error": raised(5.0)}, {"kind": "raised", "rank": 1}),
        ({"status": ABORT}, {"process_state": "S"}, {"kind": "died", "rank": 0, "signal": "SIGABRT"}),
        (
            {"status": 1, "error": raised(7.0, "ConnectionError")},
            {"status": 1, "error": raised(6.9, "ValueError")},
            {"rank": 1, "error_type": "ValueError"},
        ),
        ({"status": KILL}, {"status": 1, "error": NO_NUMPY}, {"kind": "missing-package", "missing": "numpy"}),
    ],
)
def test_of_two_ranks_that_ended_the_first_cause_is_named(one, other, expected):
    answer = failure_of({"progress": at("allreduce", 3), **one}, {"progress": at("forward", 3), **other})

    assert {name: getattr(answer, name) for name in expected} == expected


def test_what_a_rank_rejects_is_read_of_its_kind_and_not_of_its_words():
    """Also where another rank is the one that failed."""
    with pytest.raises(Rejected) as rejected:
        refuse(None, SimpleNamespace(type="cpu"), "tf32")
    error = replace(raised(2.0, "Rejected", "any words"), kind=rejected.value.kind)
    answer = failure_of({"status": KILL}, {"status": 1, "error": error})

    assert (answer.kind, answer.rejected) == ("died", "precision")
    assert evaluated(answer)[0].code == "training.precision-unsupported"


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

    place = position_of(behind)
    assert (answer.kind, answer.rank, answer.phase, answer.step) == ("hang", 1, place.phase, place.step)


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
