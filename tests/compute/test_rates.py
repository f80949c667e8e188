"""Rates against peers and ceilings, on devices made by hand."""

import pytest
from msgspec.structs import replace

from gpucheck.compute.evaluation import doubtful, evaluate
from gpucheck.model import Verdict
from gpucheck.model.compute import Rate
from tests.compute.machines import device, loud


def fleet(count=4, **first):
    return [device(0, **first), *(device(number) for number in range(1, count))]


def about(devices, check):
    return [f for f in evaluate(devices) if f.check == check]


def alone(slow, tflops, mhz=1800.0):
    rate = Rate(median=tflops, mad_percent=0.2, samples=30, clock_mhz=mhz)
    return replace(slow, gemm={"bf16": replace(slow.gemm["bf16"], alone=rate)})


def test_healthy_gpus_pass_with_the_loss_that_would_have_been_seen():
    (matrix,) = about(fleet(), "compute-matrix")

    assert matrix.verdict is Verdict.PASS
    assert "more than 5% slower" in matrix.seen
    assert loud(evaluate(fleet())) == []


def test_a_slow_gpu_is_only_possible_until_it_was_measured_alone():
    slow = fleet(tflops=595.0)
    (finding,) = about(slow, "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (Verdict.WARN, "slow-compute", "possible")
    assert [(place, step.kind, step.what) for place, step in doubtful(slow)] == [(0, "matrix", "bf16")]


def slow_by(tflops):
    """Four GPUs; the first is slow with the others, and has this rate alone."""
    first, *others = fleet(tflops=595.0)
    return [alone(first, tflops), *others]


DIFFERENT = [device(number, tflops=tflops) for number, tflops in enumerate((700.0, 600.0, 820.0, 650.0, 760.0))]


@pytest.mark.parametrize(
    ("devices", "verdict", "cause", "confidence", "code"),
    [
        (slow_by(595.0), Verdict.FAIL, "slow-compute", "likely", "compute.matrix-slow"),
        (slow_by(698.0), Verdict.WARN, None, None, "compute.slow-together"),
        (DIFFERENT, Verdict.UNKNOWN, None, None, "compute.gpus-differ"),
        ([device(0, tflops=300.0)], Verdict.WARN, "slow-compute", "possible", "compute.matrix-below-ceiling"),
        ([device(0)], Verdict.PASS, None, None, None),
    ],
    ids=["slow alone", "fast alone", "no common rate", "far below the ceiling", "near the ceiling"],
)
def test_matrix_rate_has_the_verdict_that_peers_and_ceiling_allow(devices, verdict, cause, confidence, code):
    (finding,) = about(devices, "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, cause, confidence)
    assert finding.code == code


@pytest.mark.parametrize("found", [[device(0, tflops=300.0)], slow_by(595.0)])
def test_a_virtual_gpu_without_its_license_is_no_slow_board(found):
    def matrix(licensed):
        first = replace(found[0], licensed=licensed, gsp_firmware="off")
        (finding,) = (f for f in about([first, *found[1:]], "compute-matrix") if f.verdict is not Verdict.PASS)
        return finding

    unlicensed, licensed = matrix(licensed=False), matrix(licensed=True)
    assert (unlicensed.cause, licensed.cause) == ("vgpu-unlicensed", "slow-compute")
    assert unlicensed.code == "compute.slow-unlicensed"


def test_a_lower_clock_is_no_slower_matrix():
    """Its clock is the finding, not what it does in one clock."""
    slow = fleet(mhz=1500.0, tflops=700.0 * 1500 / 1800)

    assert [f.verdict for f in about(slow, "compute-matrix")] == [Verdict.PASS]
    (clock,) = about(slow, "compute-clocks")
    assert (clock.verdict, clock.subject) == (Verdict.WARN, f"gpu:{slow[0].bus_id}")


def test_slow_memory_is_memory_alone():
    (finding,) = about(fleet(gb_s=2550.0), "compute-memory")

    assert (finding.verdict, finding.cause) == (Verdict.WARN, "slow-memory")
    assert [f.verdict for f in about(fleet(gb_s=2550.0), "compute-matrix")] == [Verdict.PASS]


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.045])
def test_a_small_loss_is_no_finding(loss):
    assert loud(evaluate(fleet(tflops=700.0 * (1 - loss), gb_s=3000.0 * (1 - loss)))) == []


def test_noisy_samples_hide_a_loss_instead_of_making_one():
    assert loud(about(fleet(tflops=640.0, mad=12.0), "compute-matrix")) == []


def test_gpus_of_other_models_are_no_peers():
    other = replace(device(1, tflops=200.0), name="NVIDIA L40S", gemm={}, multiprocessors=142)

    assert loud(evaluate([device(0), other])) == []


def test_cpu_processes_are_never_judged_by_rates():
    cpus = [replace(device(number, tflops=tflops), bus_id=None, traces=()) for number, tflops in enumerate((0.01, 0.1))]

    assert {f.check for f in evaluate(cpus)} == {"compute-results"}
