"""The engines on the CPU, in this process: the same code as on a GPU."""

import os

import pytest
from msgspec.structs import replace

from gpucheck.compute.engines.engine import LINKS, NoType
from gpucheck.compute.engines.torch import TorchEngine
from gpucheck.compute.measure import ComputeOptions, chosen_for
from gpucheck.compute.running.child import failure_of
from gpucheck.compute.values import ComputeStep, Setup
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Verdict
from gpucheck.model.device import Device
from tests.compute.machines import evaluate, run

SETUP = Setup(device=Device(index=0, name="CPU process"), parent_pid=os.getpid(), small=True)


def opened():
    pytest.importorskip("torch")
    made = TorchEngine()
    made.open(SETUP)
    return made


@pytest.fixture(scope="module")
def engine():
    return opened()


def repeated(what, phase="hot"):
    return ComputeStep(kind="results", what=what, seconds=0.01, phase=phase)


def with_flipped_bit(engine, array, place, bit):
    """A copy of an array of two-byte values in which one bit differs."""
    made = array.clone()
    made.view(engine.torch.int16).view(-1)[place] ^= 1 << bit if bit < 15 else -(1 << 15)
    return made


OPERATIONS = ["matrix-fp32", "matrix-bf16", "reduction-fp32", "attention-bf16"]


@pytest.mark.parametrize("what", OPERATIONS)
def test_repeats_are_equal_in_every_phase_and_in_another_engine(engine, what):
    found = {
        digest
        for one in (engine, opened())
        for phase in ("cold", "steps")
        for digest in one.run(repeated(what, phase)).digests
    }

    assert len(found) == 1


def test_operations_have_digests_of_their_own(engine):
    assert len({engine.run(repeated(what)).digests[0] for what in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("place", [0, 17, 4095])
@pytest.mark.parametrize("bit", [0, 7, 15])
def test_one_flipped_bit_changes_the_digest(engine, place, bit):
    values = engine.cast("bf16", engine.numbers(64, 64, 5))

    assert engine.digest(with_flipped_bit(engine, values, place, bit)) != engine.digest(values)


def test_a_value_that_changed_in_the_first_product_of_a_chain_is_seen(engine, monkeypatch):
    """Rounding may remove a small change from all later products; the first is digested as well."""
    honest = engine.run(repeated("matrix-bf16")).digests[0]
    multiply, calls = engine.multiply, []

    def wrong_once(type_, left, right):
        made = multiply(type_, left, right)
        calls.append(type_)
        return made if len(calls) > 1 else with_flipped_bit(engine, made, 197, 0)

    monkeypatch.setattr(engine, "multiply", wrong_once)
    digests = engine.run(repeated("matrix-bf16")).digests

    assert len(calls) >= LINKS
    assert digests[0] != honest
    assert set(digests[1:]) == {honest}


def test_chains_stay_finite(engine):
    for what in ("matrix-fp32", "matrix-bf16"):
        last = list(engine.operation(what)())[-1]

        assert 0.01 < float(last.std()) < 100


@pytest.mark.parametrize(
    "step",
    [
        ComputeStep(kind="matrix", what="fp32", seconds=0.02),
        ComputeStep(kind="matrix", what="bf16", seconds=0.02),
        *(ComputeStep(kind="memory", what=way, seconds=0.02) for way in ("read", "write", "copy")),
    ],
    ids=lambda step: step.label,
)
def test_rates_have_samples(engine, step):
    answer = engine.run(step)

    assert len(answer.rates) >= 7
    assert min(answer.rates) > 0
    assert answer.samples == ()


REFUSED = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be"


@pytest.mark.parametrize(
    ("capability", "types", "build"), [("6.0", "fp32, fp16", "2.14.1+cu126"), ("7.0", "fp32, fp16", "2.14.1+cu126")]
)
def test_a_build_without_code_for_the_gpus_is_one_finding_with_the_wheel_that_has_it(
    monkeypatch, capability, types, build
):
    """P100 and V100 with the default wheel of torch: CUDA 12.8 and newer builds hold no code for sm_60 and sm_70."""
    engine = opened()

    def multiply(*_):
        raise RuntimeError(REFUSED)

    monkeypatch.setattr(engine, "multiply", multiply)
    with pytest.raises(NoType) as raised:
        engine.opened("torch 2.13.0+cu128", capability, 56, {})
    gpus = [Device(index=number, name="Tesla P100", bus_id=f"0000:0{number}:00.0") for number in (1, 2)]
    failure = failure_of(raised.value)
    (said,) = evaluate(run(Refusing(failure), gpus).devices)
    (reworded,) = evaluate(run(Refusing(replace(failure, detail="other words")), gpus).devices)

    assert (said.check, said.verdict, said.cause) == ("compute", Verdict.UNKNOWN, "arch-not-in-build")
    assert said.code == "compute.no-code-for-gpu"
    assert f"{types} rejected by torch 2.13.0+cu128: CUDA error: no kernel image" in said.values["reason"]
    assert said.values["build"] == reworded.values["build"] == build
    assert "GPU 1, GPU 2" in str(said.seen)


class Refusing:
    """A bench whose devices all fail to open like this."""

    def __init__(self, failure):
        self.failure = failure

    def open(self):
        return [self.failure, self.failure]


def test_cpu_processes_are_chosen_by_device():
    chosen = chosen_for(None, ComputeOptions(devices="cpu,cpu,cpu"))

    assert (len(chosen.devices), chosen.engine) == (3, "torch on the CPU")


def test_cpus_and_gpus_are_not_combined():
    with pytest.raises(Unmeasurable) as raised:
        chosen_for(None, ComputeOptions(devices="cpu,0"))

    assert (raised.value.finding.code, raised.value.usage) == ("compute.devices-mixed", True)
