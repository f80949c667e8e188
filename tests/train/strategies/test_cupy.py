"""The CuPy transfer, on a stand-in for CuPy that keeps the GPUs' memory in numpy: what is found, not what is fast."""

import os
from pathlib import Path

import pytest

from gpucheck.model import Verdict
from gpucheck.run.steps.train import evaluated
from gpucheck.train import run_smoke
from gpucheck.train.spec import SmokeOptions

FAKE = Path(__file__).parent / "fake_cupy"


@pytest.fixture
def transfer(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE))

    def go(mode):
        environment = os.environ | {"PYTHONPATH": str(FAKE), "FAKE_CUPY": mode}
        return evaluated(run_smoke(SmokeOptions(framework="cupy", strategy="transfer"), environment))

    return go


def test_checked_copies_pass_in_both_directions(transfer):
    there, back = transfer("")
    assert {there.verdict, back.verdict} == {Verdict.PASS}
    assert there.subject == "pair:0000:03:00.0-0000:04:00.0"
    assert str(there.seen).startswith("cuda:0 to cuda:1: 4 copies of 17.1 MiB together right, by peer access, up to")


@pytest.mark.parametrize(
    ("mode", "path"), [("enabled-before", ", by peer access"), ("no-peers", ", through host memory")]
)
def test_copies_state_their_path(transfer, mode, path):
    """Without peer access cudaMemcpyPeer is staged through the host and proves nothing of a link."""
    findings = transfer(mode)
    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert all(f"together right{path}" in str(finding.seen) for finding in findings)


def test_copies_that_never_arrive_are_told_from_damaged_ones(transfer):
    untouched = transfer("never-arrives")
    assert [f.cause for f in untouched] == ["data-corruption"] * 2
    assert {f.code for f in untouched} == {"training.nothing-arrived"}


def test_damage_in_one_direction_and_size_is_found(transfer):
    there, back = transfer("damaged")
    assert (there.verdict, back.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "bytes wrong, the first at 40" in str(back.seen)
    assert back.code == "training.zeros-arrived"


def test_cupy_without_a_gpu_is_a_skip_that_says_so(transfer):
    (said,) = transfer("no-driver")
    assert said.verdict is Verdict.SKIP
    assert "sees no CUDA device" in str(said.seen)
