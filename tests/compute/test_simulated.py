"""Simulated GPUs: heat, power and clocks behave, and every fault is found, on its GPU, with its cause."""

import math
from pathlib import Path

import pytest

from gpucheck.compute.engines.simulated import SimulatedBench, read
from gpucheck.compute.values import ComputeStep, steps
from tests.compute import detection
from tests.compute.detection import MACHINES, alarms, corruption, outcome
from tests.compute.machines import computed, simulated
from tests.shared import sampled

RESULTS = Path(__file__).parents[2] / "bench/results/compute-detection-2026-11-23.md"
# Machines and seeds: FEW in make test.
FEW = 10
HEALTHY = [
    (name, seeds)
    for name, many in {"a100-sxm-x4": 1000, "p100-pcie-x2": 1000, "hgx-h100-x8": 200}.items()
    for seeds in (FEW, many)
]


def load(*faults, profile="hgx-h100-x8", what="bf16"):
    """Readings of GPU 1 during two minutes of products."""
    bench = SimulatedBench(simulated(profile, *faults))
    return bench.run(ComputeStep(kind="matrix", what=what, seconds=120.0), [1])[1].samples


def test_a_standard_run_takes_less_than_a_minute():
    every = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")

    assert 30 < sum(step.seconds for step in steps(every)) < 40
    assert sum(step.seconds for step in steps(("fp32",))) > 25, "long enough to heat a GPU up"


def test_power_stays_at_the_limit_and_the_temperature_settles():
    samples = load()

    assert max(sample.power_w for sample in samples) <= 700.1
    assert samples[-1].reasons == ("sw-power-cap",)
    assert samples[-1].temperature_c == pytest.approx(66, abs=2)
    assert abs(samples[-1].temperature_c - samples[-100].temperature_c) <= 1


def test_a_slow_gpu_is_measured_again_alone():
    ran, _ = computed("hgx-h100-x8", "gemm-slow:gpu=3")
    alone = [(d.index, t) for d in ran.devices for t, rate in d.gemm.items() if rate.alone]

    assert {index for index, _ in alone} == {3}


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "seeds"), sampled(HEALTHY, lambda _, case: case[1] == FEW))
def test_healthy_machines_raise_no_alarm(profile, seeds):
    assert alarms(profile, seeds) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", sampled([5, 100], (0,)))
@pytest.mark.parametrize("fault", detection.FAULTS)
def test_each_fault_is_found_with_every_seed(fault, seeds):
    assert outcome("a100-sxm-x4", fault, seeds) == (seeds, seeds, 0)


@pytest.mark.slow
@pytest.mark.parametrize("expected", sampled(detection.THEORY, lambda _, expected: expected == 0.5))
def test_corruption_is_found_as_often_as_theory_states(expected):
    """The rate of wrong values is chosen so that a run finds it with this probability; counted in 400 runs."""
    theory, found = corruption(expected)

    assert theory == pytest.approx(expected, abs=0.001)
    assert found == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / detection.RUNS))


def test_the_kept_results_have_every_fault_and_machine_and_no_alarm():
    text = RESULTS.read_text(encoding="utf-8")

    assert "| fault | " + " | ".join(MACHINES) in text
    for fault in detection.FAULTS:
        assert f"| `{fault}` |" + f" {detection.SEEDS}; {detection.SEEDS}; 0 |" * len(MACHINES) in text
    for machine, runs in detection.HEALTHY.items():
        assert f"| {machine} | {runs} | 0 |" in text


def test_a_machine_without_a_description_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"compute\.json"):
        read(tmp_path)
