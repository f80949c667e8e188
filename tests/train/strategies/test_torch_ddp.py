"""The real thing: torch, two processes, gloo. Every fault is put into a real run and seen for what it is."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpucheck.model import Verdict
from gpucheck.model.smoke import SmokeFailure, SmokeResult
from gpucheck.run.steps.train import evaluated
from gpucheck.train import run_smoke
from gpucheck.train.spec import TrainingFault
from tests.train.broken import FAULTS
from tests.train.conftest import Marked
from tests.train.real import SHORT, TWO_RANKS, run_all

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, SmokeResult]:
    return run_all(TWO_RANKS, tmp_path_factory, processes=2)


@pytest.fixture
def healthy(runs: dict[str, SmokeResult]) -> SmokeResult:
    return runs["healthy"]


def bad(outcome: SmokeResult | SmokeFailure) -> list[tuple[str, str | None]]:
    """Seen and cause of everything that is not right."""
    wrong = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
    return [(str(finding.seen), finding.cause) for finding in evaluated(outcome) if finding.verdict in wrong]


CLEAN = [name for name, options in TWO_RANKS.items() if options.fault is None and name not in FAULTS]


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_a_run_in_which_nothing_is_wrong(runs, name):
    """Every model, precision and strategy with two ranks: not one verdict but passes and the word on CPU ranks."""
    assert bad(runs[name]) == []
    assert runs[name].loss_last < 0.5 * runs[name].loss_first
    assert runs[name].accuracy > 0.9


def test_a_healthy_run_is_far_inside_the_limits(healthy):
    assert 0 <= healthy.references[0].max_abs_difference < 1e-6
    assert healthy.summed_steps == healthy.steps
    assert max(healthy.memory_kept_bytes) < 4 << 20


def test_a_healthy_run_says_where_and_with_what_it_ran(healthy):
    assert (healthy.backend, healthy.placement, healthy.devices) == ("gloo", "cpu", ("cpu", "cpu"))
    assert healthy.versions["torch"]
    assert len(healthy.losses) == healthy.steps == 10
    phases = {"import", "init", "data", "broadcast", "load", "forward", "backward", "allreduce", "optimizer", "check"}
    assert phases <= set(healthy.seconds)


def test_performance_is_told_beside_correctness(runs):
    measured = runs["clean"].performance
    assert measured is not None
    assert all(rate > 0 for rate in measured.samples_per_s)
    assert set(measured.shares) == {"data", "forward", "backward", "communication", "optimizer"}
    assert sum(measured.shares.values()) == pytest.approx(1, abs=0.01)
    assert measured.scaling_efficiency == pytest.approx(
        sum(measured.samples_per_s) / (2 * measured.single_samples_per_s), abs=0.01
    )


def test_where_communication_is_not_told_apart_it_is_no_share_of_zero(runs):
    measured = runs["fsdp"].performance
    assert "communication" not in measured.shares
    assert "not measured separately" in measured.communication
    assert measured.straggler_ratio is None, "waiting for another rank would look like computing"


def test_ranks_are_compared_before_the_first_step_every_few_and_at_the_end(healthy):
    assert [checkpoint.step for checkpoint in healthy.checkpoints] == [0, 4, 8, 10]
    hashes = [checkpoint.parameters[0] for checkpoint in healthy.checkpoints]
    assert len(set(hashes)) == 4, "the parameters move"
    for checkpoint in healthy.checkpoints:
        for values in (checkpoint.parameters, checkpoint.gradients, checkpoint.optimizer):
            assert values is None or (len(values), len(set(values))) == (2, 1)


def test_two_runs_with_one_seed_are_bit_equal_and_another_seed_is_not(runs, healthy):
    assert runs["again"].checkpoints == healthy.checkpoints
    one, other = ({checkpoint.parameters for checkpoint in runs[name].checkpoints} for name in ("healthy", "clean"))
    assert not one & other
    assert all(repeat.first == repeat.second == healthy.checkpoints[1].parameters[0] for repeat in healthy.repeats)


def test_lower_precision_is_really_used(runs, healthy):
    losses = {runs[name].losses for name in ("healthy", "bf16", "fp16")}
    assert len(losses) == 3


def test_one_flipped_bit_in_one_ranks_gradient_is_found_at_its_step(runs, healthy):
    """The lowest bit of one of 101770 numbers: far below any tolerance, and still not what was sent."""
    outcome = runs["flip-bit"]
    assert outcome.gradients_differ_from_step == 6
    assert ("averaged gradients differ between ranks, first in step 6", "data-corruption") in bad(outcome)
    assert outcome.miscommunication is None, "the sums alone would not have seen it"
    assert outcome.checkpoints[1] == healthy.checkpoints[1], "before it, nothing differs"


@pytest.mark.parametrize(
    ("name", "words", "cause"),
    [
        ("drop", "step 6: the contribution of rank 1 is missing from the average", "contribution-lost"),
        ("stale", "step 6: rank 1 contributed the gradients of the step before", "stale-buffer"),
        ("data-order", "rank 1 was fed other samples than planned", "data-order-differs"),
        ("slow", "rank 1 on cpu computes ", "slow-rank"),
        ("leak", "rank 1 keeps ", None),  # 64 MiB and what the machine adds: on the CPU it is the resident memory
    ],
)
def test_each_fault_of_the_communication_has_its_own_verdict_and_cause(runs, name, words, cause):
    """In all of these the ranks agree with each other to the last bit, and the model converges."""
    first, *others = bad(runs[name])
    assert first[0].startswith(words)
    assert first[1] == cause
    assert {word for _, word in others} <= {None}, "what follows from it accuses nothing else"
    assert runs[name].gradients_differ_from_step is None


def test_a_slow_rank_is_a_warning_with_the_factor(runs):
    (finding,) = [f for f in evaluated(runs["slow"]) if f.cause == "slow-rank"]
    assert finding.verdict is Verdict.WARN
    assert runs["slow"].performance.straggler_ratio > 1.5


def test_a_loss_that_does_not_fall_fails(runs):
    loss, accuracy, reference = bad(runs["freeze"])  # and nothing else: the ranks agree with each other
    assert loss[0].startswith("loss 2.3")
    assert "accuracy on 512 held-out samples" in accuracy[0]
    assert reference[0].startswith("parameters within 0.")


def test_not_a_number_is_traced_to_the_rank_and_step_where_it_began(runs):
    outcome = runs["nan"]
    assert [(stray.rank, stray.step) for stray in outcome.not_a_number] == [(0, 6), (1, 5)]
    assert outcome.references[0].max_abs_difference is None
    assert any("rank 1 from step 5 on" in seen for seen, _ in bad(outcome))


def fail(fault: TrainingFault, environment: dict[str, str] | None = None, **options: Any) -> SmokeFailure:
    outcome = run_smoke(replace(SHORT, fault=fault, timeout_s=120, **options), os.environ | (environment or {}))
    assert isinstance(outcome, SmokeFailure), outcome
    return outcome


def test_a_killed_rank_is_named_although_its_peer_raised_and_nothing_of_it_is_left():
    marked = Marked()
    shared = set(Path("/dev/shm").glob("torch_*"))

    outcome = fail(TrainingFault(kind="die", phase="allreduce", step=3), marked.environment)

    assert (outcome.kind, outcome.rank, outcome.step, outcome.phase) == ("died", 1, 3, "allreduce")
    assert outcome.signal == signal.SIGKILL.name
    assert evaluated(outcome)[0].cause == "rank-killed"
    assert marked.running() == [], "with its last process goes every socket and port of a run"
    left = set(Path("/dev/shm").glob("torch_*")) - shared
    assert [file for file in left if not Path(f"/proc/{file.name.split('_')[1]}").exists()] == []
