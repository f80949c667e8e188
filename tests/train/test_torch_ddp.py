"""The real thing: torch, two processes, gloo. One run for each fault, and each fault is seen."""

import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from gpucheck.model import Verdict
from gpucheck.train import judge, run_smoke
from gpucheck.train.outcome import SmokeFailure, SmokeResult
from gpucheck.train.spec import Fault, SmokeOptions

# A machine with GPUs runs these on the CPU all the same: what is tested here is the test.
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
SHORT = SmokeOptions(steps=10, check_every=4, timeout_s=120)


def train(fault: Fault | None = None, **options: Any) -> SmokeResult | SmokeFailure:
    return run_smoke(replace(SHORT, fault=fault, **options), ENVIRONMENT)


@pytest.fixture(scope="module")
def healthy() -> SmokeResult:
    outcome = train()
    assert isinstance(outcome, SmokeResult), outcome
    return outcome


def failures(outcome: SmokeResult | SmokeFailure) -> list[str]:
    return [str(finding.seen) for finding in judge(outcome) if finding.verdict is Verdict.FAIL]


def test_a_healthy_run_fails_nothing(healthy):
    assert failures(healthy) == []
    assert healthy.loss_last < 0.5 * healthy.loss_first
    assert healthy.accuracy > 0.9
    assert 0 <= healthy.references[0].max_abs_difference < 1e-6


def test_a_healthy_run_says_where_and_with_what_it_ran(healthy):
    assert (healthy.backend, healthy.placement, healthy.devices) == ("gloo", "cpu", ("cpu", "cpu"))
    assert healthy.versions["torch"]
    assert len(healthy.losses) == healthy.steps == 10
    assert all(rate > 0 for rate in healthy.performance.samples_per_s)
    phases = {"import", "init", "data", "broadcast", "load", "forward", "backward", "allreduce", "optimizer", "check"}
    assert phases <= set(healthy.seconds)
    assert healthy.seconds["total"] > healthy.seconds["import"]


def test_ranks_are_compared_before_the_first_step_every_few_and_at_the_end(healthy):
    assert [checkpoint.step for checkpoint in healthy.checkpoints] == [0, 4, 8, 10]
    hashes = [checkpoint.parameters[0] for checkpoint in healthy.checkpoints]
    assert len(set(hashes)) == 4, "the parameters move"
    for checkpoint in healthy.checkpoints:
        for values in (checkpoint.parameters, checkpoint.gradients, checkpoint.optimizer):
            assert values is None or (len(values), len(set(values))) == (2, 1)


def test_two_runs_with_one_seed_are_bit_equal_and_another_seed_is_not(healthy):
    again, other = train(), train(seed=1)

    assert isinstance(again, SmokeResult)
    assert isinstance(other, SmokeResult)
    assert again.checkpoints == healthy.checkpoints
    assert again.losses == healthy.losses
    assert other.checkpoints[-1] != healthy.checkpoints[-1]


def test_one_flipped_bit_in_one_ranks_gradient_is_found_at_its_step(healthy):
    """The lowest bit of one of 101770 numbers: far below any tolerance, and still not what was sent."""
    outcome = train(Fault(kind="flip-bit", step=6))

    assert isinstance(outcome, SmokeResult)
    assert outcome.gradients_differ_from_step == 6
    assert "averaged gradients differ between ranks, first in step 6" in failures(outcome)
    assert outcome.checkpoints[1] == healthy.checkpoints[1], "before it, nothing differs"


def test_a_loss_that_does_not_fall_fails():
    outcome = train(Fault(kind="freeze", rank=None))

    loss, accuracy, reference = failures(outcome)  # and nothing else: the ranks agree with each other
    assert loss.startswith("loss 2.3")
    assert "accuracy on 512 held-out samples" in accuracy
    assert reference.startswith("parameters within 0.")


def test_a_rank_with_another_data_order_is_not_fine():
    """It converges all the same; the plan of samples and the reference tell."""
    outcome = train(Fault(kind="data-order"))

    assert isinstance(outcome, SmokeResult)
    assert outcome.wrong_data_ranks == (1,)
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.9
    assert [text.split(" ")[0] for text in failures(outcome)] == ["rank", "parameters"]


def test_not_a_number_is_traced_to_the_rank_and_step_where_it_began():
    outcome = train(Fault(kind="nan", step=5))

    assert isinstance(outcome, SmokeResult)
    assert [(stray.rank, stray.step) for stray in outcome.not_a_number] == [(0, 6), (1, 5)]
    assert outcome.references[0].max_abs_difference is None
    assert any("rank 1 from step 5 on" in text for text in failures(outcome))


def test_a_rank_that_never_enters_the_all_reduce_is_named_with_its_stack():
    outcome = train(Fault(kind="hang", phase="backward", step=3), stall_s=3)

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.rank, outcome.device, outcome.step, outcome.phase) == (
        "hang",
        1,
        "cpu",
        3,
        "backward",
    )
    assert "in _act" in outcome.stack[0]
    assert any(line.startswith("rank 0 (cpu): step 3 of 10, allreduce for") for line in outcome.evidence)


def test_a_killed_rank_is_named_although_its_peer_raised():
    outcome = train(Fault(kind="die", phase="allreduce", step=3))

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.rank, outcome.step, outcome.phase) == ("died", 1, 3, "allreduce")
    assert outcome.signal == signal.SIGKILL.name
