"""TensorFlow MirroredStrategy for real, on two logical CPU devices; for environments that hold TensorFlow."""

import os

import pytest

from gpucheck.model import Verdict
from gpucheck.model.smoke import SmokeResult
from gpucheck.run.steps.train import evaluated
from gpucheck.train import run_smoke
from gpucheck.train.run_plan import plan
from gpucheck.train.spec import SmokeOptions
from tests.train.conftest import ROOT

pytestmark = pytest.mark.slow

pytest.importorskip("tensorflow")

RUNS = [
    options
    for model in ("mlp", "cnn")
    for _, options in plan("tensorflow", "mirrored", SmokeOptions(model=model), steps=None, capabilities=())
]


@pytest.fixture(scope="module", params=RUNS, ids=lambda options: options.model)
def outcome(request):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return run_smoke(request.param, environment)


def test_the_mirrors_agree_with_each_other_and_with_one_device(outcome):
    assert isinstance(outcome, SmokeResult), outcome
    findings = evaluated(outcome)
    assert {finding.verdict for finding in findings} == {Verdict.PASS, Verdict.SKIP}
    assert {finding.check for finding in findings} == {"smoke-tensorflow-mirrored", "smoke-placement"}
    apart = outcome.references[0].max_abs_difference
    assert apart is not None
    assert apart < 1e-5
    assert len(outcome.checkpoints[-1].parameters) == 2
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.9


def test_two_logical_cpu_devices_are_called_that(outcome):
    assert outcome.devices == ("CPU:0", "CPU:1")
    assert "2 logical devices of one CPU" in outcome.placement_reason
    assert outcome.backend == "reduction to one device"
