"""Every torch strategy on all GPUs, with NVLS too if there are more than two. One GPU: two ranks share it."""

import os

import pytest

from gpucheck.model import Verdict
from gpucheck.model.smoke import SmokeResult
from gpucheck.run.steps.train import evaluated
from gpucheck.train import run_smoke
from gpucheck.train.run_plan import on_all_gpus, plan
from gpucheck.train.smoke import conclude, rank_environment, train_in_ranks
from gpucheck.train.spec import SmokeOptions, TrainingFault, unsupported
from gpucheck.train.strategies import all_strategies
from tests.train.conftest import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def capabilities(cuda) -> list[str]:
    count = cuda.cuda.device_count()
    return [".".join(map(str, cuda.cuda.get_device_capability(number))) for number in range(count)]


def passes(framework: str, strategy: str, spec: SmokeOptions, gpus: int) -> list[SmokeResult]:
    results = []
    planned = plan(framework, strategy, spec, steps=None, capabilities=())
    for _, options in on_all_gpus(planned, gpus, nvls=gpus > 2):
        outcome = run_smoke(options)
        assert isinstance(outcome, SmokeResult), outcome
        assert outcome.placement == ("gpus" if gpus >= 2 else "shared-gpu")
        bad = [f for f in evaluated(outcome, gpus=gpus) if f.verdict not in (Verdict.PASS, Verdict.SKIP)]
        assert bad == []
        results.append(outcome)
    return results


@pytest.mark.parametrize("key", list(all_strategies()), ids=" ".join)
def test_every_strategy_trains_on_the_gpus(capabilities, key):
    for package in all_strategies()[key].packages:
        pytest.importorskip(package)  # a framework that is not installed is no missing GPU
    framework, strategy = key
    passes(framework, strategy, SmokeOptions(timeout_s=90), len(capabilities))


@pytest.mark.parametrize("model", ["cnn", "gpt"])
def test_every_model_trains_on_the_gpus(capabilities, model):
    passes("torch", "ddp", SmokeOptions(timeout_s=90, model=model), len(capabilities))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_every_precision_that_the_gpus_have(capabilities, precision):
    if any(unsupported(precision, capability) for capability in capabilities):
        pytest.skip(f"these GPUs have no {precision}")
    passes("torch", "ddp", SmokeOptions(timeout_s=90, precision=precision), len(capabilities))


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("flip-bit", "data-corruption"),
        ("drop", "contribution-lost"),
        ("stale", "stale-buffer"),
        ("data-order", "data-order-differs"),
    ],
)
def test_faults_of_the_communication_are_found_on_gpus_too(capabilities, name, cause):
    flipped = name == "flip-bit"
    options = SmokeOptions(timeout_s=90, fault=TrainingFault(kind="flip-bit", step=6) if flipped else None)
    environment, removed = rank_environment(os.environ | {"PYTHONPATH": str(ROOT), "BROKEN": name}, options)
    program = all_strategies()["torch", "ddp"].program if flipped else "tests.train.broken:run"
    outcome = conclude(train_in_ranks(program, options, environment), options, removed)
    assert cause in [finding.cause for finding in evaluated(outcome)]
