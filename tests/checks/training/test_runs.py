"""Each assertion of the smoke test has its own finding, its number, and a remedy that fits the kind of run."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.training.runs import COPIES, RUNS
from gpucheck.model import Verdict, worst
from gpucheck.model.smoke import Checkpoint, Divergence
from gpucheck.run.steps.train import evaluated
from gpucheck.train.strategies import all_strategies
from tests.train.outcomes import HANG, ON_CPU, ON_GPUS, ON_ONE_GPU, REFERENCE, SAME, STEP_5, STEP_10, A, B


def failed(outcome, **options):
    return [finding for finding in evaluated(outcome, **options) if finding.verdict is Verdict.FAIL]


def test_a_healthy_run_on_two_gpus_passes_everything_about_their_pair():
    findings = evaluated(ON_GPUS, gpus=2)

    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert {finding.subject for finding in findings} == {"pair:0000:3b:00.0-0000:af:00.0"}
    assert {finding.check for finding in findings} == {"smoke-ddp"}


def test_a_run_on_cpus_passes_and_says_that_no_gpu_took_part():
    *passes, said = evaluated(ON_CPU)

    assert worst(finding.verdict for finding in evaluated(ON_CPU)) is Verdict.PASS
    assert said.verdict is Verdict.SKIP
    assert said.seen == "2 CPU ranks, gloo: this tests the software stack, not GPU communication"
    assert (said.code, said.values["version"]) == ("training.across-no-cuda", "2.13.0+cpu")
    assert all(finding.evidence[0].startswith("2 CPU ranks, gloo: ") for finding in passes)


def test_two_ranks_on_one_gpu_do_not_pass_for_two_gpus():
    said = evaluated(ON_ONE_GPU, gpus=1)[-1]

    assert (said.verdict, said.subject) == (Verdict.SKIP, "gpu:0000:3b:00.0")
    assert "not communication between GPUs" in str(said.seen)


@pytest.mark.parametrize(
    ("result", "verdict", "words", "code"),
    [
        (ON_CPU, Verdict.UNKNOWN, "is a build without CUDA", "build-without-cuda"),
        (
            replace(ON_CPU, versions={"torch": "2.7.1+cu126", "cuda": "12.6"}),
            Verdict.FAIL,
            "tests the software stack",
            "gpus-not-found",
        ),
        (ON_ONE_GPU, Verdict.FAIL, "tests one GPU", "one-gpu-used"),
    ],
)
def test_gpus_that_the_framework_does_not_use_are_no_pass(result, verdict, words, code):
    """A host full of GPUs on which torch trains on the CPU is the classic false green."""
    *others, said = evaluated(result, gpus=2)

    assert (said.verdict, said.cause, said.wanted) == (verdict, None, "training on the 2 GPUs of this host")
    assert words in str(said.seen)
    assert said.check == "smoke-placement"
    assert said.check not in {finding.check for finding in others}
    assert said.code == f"training.{code}"


def test_cupy_that_finds_no_gpu_on_a_host_with_gpus_is_unknown():
    failure = replace(HANG, kind="no-device", framework="cupy", detail="CuPy 14.0 sees no CUDA device")

    (said,) = evaluated(failure, gpus=2)
    assert (said.verdict, said.seen) == (Verdict.UNKNOWN, "ddp with cupy unknown: CuPy 14.0 sees no CUDA device")
    assert evaluated(failure, gpus=None)[0].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"loss_last": 1.9}, "loss 2 in step 1, 1.9 in step 10: 0.95 of it"),
        ({"loss_last": None, "not_a_number": (Divergence(rank=1, step=3),)}, "not a number: rank 1 from step 3 on"),
        ({"accuracy": 0.12}, "12.0% accuracy on 512 held-out samples"),
        ({"accuracy": None}, "no accuracy on 512 held-out samples"),
        ({"wrong_data_ranks": (1,)}, "rank 1 was fed other samples than planned"),
        ({"checkpoints": (Checkpoint(step=0, parameters=(A, B)), STEP_5)}, f"rank 0 {A[:12]}, rank 1 {B[:12]}"),
        ({"gradients_differ_from_step": 3}, "averaged gradients differ between ranks, first in step 3"),
        (
            {"checkpoints": (Checkpoint(step=0, parameters=SAME), STEP_5, replace(STEP_10, parameters=(A, B)))},
            "parameters differ between ranks, first after step 10",
        ),
        (
            {"checkpoints": (Checkpoint(step=0, parameters=SAME), STEP_5, replace(STEP_10, optimizer=(A, B)))},
            "optimizer state differs between ranks, first after step 10",
        ),
        ({"references": (replace(REFERENCE, max_abs_difference=2e-4),)}, "parameters within 0.0002 of one process"),
        ({"references": (replace(REFERENCE, max_abs_difference=None),)}, "not a number"),
    ],
)
def test_each_broken_promise_is_one_failure_with_its_number(change, seen):
    (finding,) = failed(replace(ON_GPUS, **change))

    assert seen in str(finding.seen)
    assert finding.wanted
    assert finding.code


def test_the_limits_themselves_are_still_good():
    """At most and at least, as the report states them."""
    limits = ON_GPUS.limits
    edge = replace(
        ON_GPUS,
        loss_last=ON_GPUS.loss_first * limits.loss_fraction_max,
        accuracy=limits.accuracy_min,
        references=(replace(REFERENCE, max_abs_difference=limits.parameter_tolerance),),
    )
    assert failed(edge) == []


def test_differing_ranks_mean_damaged_data_and_the_code_fits_the_hardware():
    (on_gpus,) = failed(replace(ON_GPUS, gradients_differ_from_step=7))
    (on_cpu,) = failed(replace(ON_CPU, gradients_differ_from_step=7))

    assert on_gpus.cause == on_cpu.cause == "data-corruption"
    codes = (on_gpus.code, on_cpu.code)
    assert codes == ("training.gradients-differ", "training.gradients-differ-on-cpu")


def test_a_rank_with_other_data_explains_the_difference_from_the_reference():
    """Then the links are not under suspicion."""
    findings = failed(replace(ON_GPUS, wrong_data_ranks=(1,), references=(replace(REFERENCE, max_abs_difference=0.1),)))

    assert [finding.cause for finding in findings] == ["data-order-differs", None]


def test_variables_kept_from_the_ranks_are_evidence_everywhere():
    finding = evaluated(replace(ON_GPUS, environment_removed=("NCCL_P2P_DISABLE=1",)))[0]

    assert "kept from the ranks: NCCL_P2P_DISABLE=1" in finding.evidence


def test_a_hang_names_rank_device_step_phase_and_shows_the_stack():
    (finding,) = evaluated(HANG)

    assert (finding.verdict, finding.subject) == (Verdict.FAIL, "gpu:0000:af:00.0")
    assert str(finding.seen).startswith("hang: rank 1 on cuda:1, in step 3 of 40, backward: no rank moved for 30 s")
    assert any("_engine_run_backward" in line for line in finding.evidence)
    assert (finding.cause, finding.confidence) == ("false-p2p-grant", "possible")


ANONYMOUS = {"rank": None, "device": None, "bus_id": None}
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)"
FULL = "host-resources"
BUSY = Verdict.UNKNOWN, "gpu-busy", "gpu-memory-taken"  # a user's process cannot make a host fail
RAISED = (
    ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", *BUSY),
    ("RuntimeError: CUDA error: out of memory", *BUSY),
    ("DistBackendError: NCCL error. Last error: Cuda failure 2 'out of memory'", *BUSY),
    (
        "CUDA error: uncorrectable NVLink error detected during the execution",
        Verdict.FAIL,
        "nvlink-errors",
        "nvlink-failed",
    ),
    ("ValueError: odd", Verdict.FAIL, None, "rank-raised"),
    (NO_KERNEL, Verdict.FAIL, "arch-not-in-build", "no-code-for-gpu"),
    ("CUDA error: system not yet initialized", Verdict.FAIL, "fabric-manager-down", "fabric-not-ready"),
    (TOO_OLD, Verdict.FAIL, "driver-mismatch", "driver-mismatch"),
    ("all CUDA-capable devices are busy or unavailable", Verdict.FAIL, "compute-mode-exclusive", "gpu-exclusive"),
    ("OSError: [Errno 28] No space left on device", Verdict.UNKNOWN, FULL, "no-disk-space"),
    ("OSError: [Errno 27] File too large: 'report'", Verdict.UNKNOWN, FULL, "no-disk-space"),
    ("OSError: [Errno 24] Too many open files", Verdict.UNKNOWN, "rank-killed", "rank-no-resources"),
    ("RuntimeError: DefaultCPUAllocator: can't allocate memory", Verdict.UNKNOWN, "rank-killed", "rank-no-resources"),
)


@pytest.mark.parametrize(
    ("change", "verdict", "cause", "code"),
    [
        ({}, Verdict.FAIL, "false-p2p-grant", "gpu-ranks-stuck"),
        ({"device": "cpu", "bus_id": None, "evidence": ()}, Verdict.FAIL, "rank-stuck", "cpu-ranks-stuck"),
        (ANONYMOUS, Verdict.FAIL, "false-p2p-grant", "gpu-ranks-stuck"),
        ({"process_state": "T"}, Verdict.FAIL, None, "rank-stopped"),
        ({"process_state": "D"}, Verdict.FAIL, "wedged-driver", "rank-in-kernel"),
        ({"kind": "died", "signal": "SIGKILL"}, Verdict.UNKNOWN, "rank-killed", "rank-killed"),
        ({"kind": "died", "signal": "SIGTERM"}, Verdict.UNKNOWN, "rank-killed", "rank-killed"),
        ({"kind": "died", "signal": "SIGBUS"}, Verdict.UNKNOWN, "shm-too-small", "shared-memory-short"),
        ({"kind": "died", "signal": "SIGSEGV"}, Verdict.FAIL, "library-mismatch", "rank-crashed"),
        (
            {"kind": "died", "evidence": ("rank 1 printed: cannot allocate memory for thread-local data: ABORT",)},
            Verdict.UNKNOWN,
            "rank-killed",
            "rank-no-resources",
        ),
        ({"kind": "garbage"}, Verdict.FAIL, None, "rank-unreadable"),
        ({"kind": "raised", "error_type": "MemoryError"}, Verdict.UNKNOWN, "rank-killed", "rank-no-resources"),
        (
            {"kind": "no-device", **ANONYMOUS, "detail": "CuPy 13.6 sees no CUDA device"},
            Verdict.SKIP,
            None,
            "framework-needs-gpu",
        ),
        *(({"kind": "raised", "detail": detail}, *expected) for detail, *expected in RAISED),
        (
            {"kind": "raised", "evidence": ("NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes",)},
            Verdict.UNKNOWN,
            "shm-too-small",
            "shared-memory-short",
        ),
        ({"kind": "raised", "rejected": "precision"}, Verdict.FAIL, None, "precision-unsupported"),
        ({"kind": "raised", "rejected": "sum"}, Verdict.FAIL, "data-corruption", "sum-wrong"),
        ({"kind": "timeout-start", "phase": "import"}, Verdict.UNKNOWN, None, "start-slow"),
        ({"kind": "timeout-start", **ANONYMOUS}, Verdict.UNKNOWN, None, "ranks-not-started"),
        (
            {"kind": "timeout-start", **ANONYMOUS, "detail": "No space left on device"},
            Verdict.UNKNOWN,
            FULL,
            "no-disk-space",
        ),
        ({"kind": "timeout", **ANONYMOUS}, Verdict.UNKNOWN, None, "run-slow"),
        ({"kind": "missing-package", "missing": "torch", **ANONYMOUS}, Verdict.SKIP, None, "package-missing"),
    ],
)
def test_every_failure_has_its_verdict_cause_and_code(change, verdict, cause, code):
    (finding,) = evaluated(replace(HANG, **change))

    assert (finding.verdict, finding.cause, finding.code) == (verdict, cause, f"training.{code}")
    assert (finding.confidence is None) == (cause is None)


def test_every_strategy_has_a_check():
    assert {*RUNS, *COPIES} == {strategy.check for strategy in all_strategies().values()}
    assert {*COPIES} == {strategy.check for strategy in all_strategies().values() if not strategy.trains}
