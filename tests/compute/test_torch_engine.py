"""The torch engine on the CPU, in this process: the same code as on a GPU."""

import os
import sys

import pytest

from gpucheck.compute.engines.torch import LINKS, TorchEngine
from gpucheck.compute.values import Device, Setup, Step

torch = pytest.importorskip("torch")
SETUP = Setup(device=Device(index=0, name="CPU process"), parent_pid=os.getpid(), small=True)


@pytest.fixture(scope="module", autouse=True)
def _plain_intern():
    """After tests of playbooks, sys.intern is an object of Ansible, which torch's compiler does not accept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "intern", getattr(sys.intern, "unpatched_implementation", sys.intern))
        yield


@pytest.fixture(scope="module")
def engine():
    made = TorchEngine()
    made.open(SETUP)
    return made


def repeated(what, phase="hot"):
    return Step(kind="results", what=what, seconds=0.01, phase=phase)


OPERATIONS = ["matrix-fp32", "matrix-bf16", "reduction-fp32", "attention-bf16"]


@pytest.mark.parametrize("what", OPERATIONS)
def test_repeats_are_equal_in_every_phase_and_in_another_engine(engine, what):
    other = TorchEngine()
    other.open(SETUP)
    found = {
        digest
        for one in (engine, other)
        for phase in ("cold", "steps")
        for digest in one.run(repeated(what, phase)).digests
    }

    assert len(found) == 1


def test_operations_have_digests_of_their_own(engine):
    assert len({engine.run(repeated(what)).digests[0] for what in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("place", [0, 17, 4095])
@pytest.mark.parametrize("bit", [0, 7, 15])
def test_one_flipped_bit_changes_the_digest(engine, place, bit):
    whole = torch.arange(4096, dtype=torch.float32).to(torch.bfloat16)
    before = engine._digest(whole)
    bits = whole.view(torch.int16)
    bits[place] ^= torch.tensor(1 << bit if bit < 15 else -(1 << 15), dtype=torch.int16)

    assert engine._digest(whole) != before


def test_a_value_that_changed_in_the_first_product_of_a_chain_is_seen(engine, monkeypatch):
    """Rounding may remove a small change from all later products; the first is digested as well."""
    honest = engine.run(repeated("matrix-bf16")).digests[0]
    multiply, calls = engine._multiply, []

    def wrong_once(type_, left, right):
        made = multiply(type_, left, right)
        if not calls:
            made.view(torch.int16)[3, 5] ^= 1
        calls.append(type_)
        return made

    monkeypatch.setattr(engine, "_multiply", wrong_once)
    digests = engine.run(repeated("matrix-bf16")).digests

    assert len(calls) >= LINKS
    assert digests[0] != honest
    assert set(digests[1:]) == {honest}


def test_chains_stay_finite(engine):
    for what in ("matrix-fp32", "matrix-bf16"):
        last = list(engine._operation(what)())[-1].to(torch.float32)

        assert torch.isfinite(last).all()
        assert 0.01 < last.std() < 100


@pytest.mark.parametrize(
    "step",
    [
        Step(kind="matrix", what="fp32", seconds=0.02),
        Step(kind="matrix", what="bf16", seconds=0.02),
        *(Step(kind="memory", what=way, seconds=0.02) for way in ("read", "write", "copy")),
    ],
    ids=lambda step: step.label,
)
def test_rates_have_samples(engine, step):
    answer = engine.run(step)

    assert len(answer.rates) >= 7
    assert min(answer.rates) > 0
    assert answer.samples == ()
