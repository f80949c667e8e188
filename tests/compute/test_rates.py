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


def test_a_gpu_that_is_slow_alone_as_well_fails():
    slow = fleet(tflops=595.0)
    slow[0] = alone(slow[0], 595.0)
    (finding,) = about(slow, "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (Verdict.FAIL, "slow-compute", "likely")
    assert finding.subject == f"gpu:{slow[0].bus_id}"
    assert "15% slower at the same clock than the other 3 GPUs" in finding.why


def test_a_gpu_that_is_fast_alone_is_not_accused():
    slow = fleet(tflops=595.0)
    slow[0] = alone(slow[0], 698.0)
    (finding,) = about(slow, "compute-matrix")

    assert (finding.verdict, finding.cause) == (Verdict.WARN, None)
    assert "power, cooling" in finding.why


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


def test_no_outlier_is_not_claimed_where_gpus_differ_among_themselves():
    devices = [device(number, tflops=tflops) for number, tflops in enumerate((700.0, 600.0, 820.0, 650.0, 760.0))]
    (finding,) = about(devices, "compute-matrix")

    assert finding.verdict is Verdict.UNKNOWN
    assert "would not be seen" in finding.why


def test_one_gpu_far_below_its_ceiling_warns():
    (finding,) = about([device(0, tflops=300.0)], "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (Verdict.WARN, "slow-compute", "possible")


def test_one_gpu_near_its_ceiling_passes_and_states_that_it_had_no_peer():
    (finding,) = about([device(0)], "compute-matrix")

    assert finding.verdict is Verdict.PASS
    assert "no other GPU" in finding.seen


def test_gpus_of_other_models_are_no_peers():
    other = replace(device(1, tflops=200.0), name="NVIDIA L40S", gemm={}, multiprocessors=142)

    assert loud(evaluate([device(0), other])) == []


def test_cpu_processes_are_never_judged_by_rates():
    cpus = [replace(device(number, tflops=tflops), bus_id=None, traces=()) for number, tflops in enumerate((0.01, 0.1))]

    assert {f.check for f in evaluate(cpus)} == {"compute-results"}
