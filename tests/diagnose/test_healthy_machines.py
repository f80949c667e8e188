"""SIMULATED machines without a fault pass, whatever their size, noise, or how they were made: no false alarm."""

import pytest

from gpucheck.model import Verdict
from tests.diagnose.faulty import QUIET, SHAPES, shape
from tests.diagnose.machines import GEFORCE, RAW, healthy, nvlinked, without_p2p
from tests.diagnose.results import diagnosed

pytestmark = pytest.mark.slow
BOARDS = [
    ("NVIDIA H100 80GB HBM3", 8, 18, 25.0, 0.85, 18),
    ("NVIDIA A100-SXM4-80GB", 8, 12, 25.0, 0.92, 12),
    ("NVIDIA B200", 8, 18, 50.0, 0.83, 18),
    ("NVIDIA A100-SXM4-40GB", 4, 4, 25.0, 0.92, 12),
    ("NVIDIA A100-SXM-64GB", 4, 4, 25.0, 0.92, 12),
    ("NVIDIA GeForce RTX 3090", 2, 4, 14.0625, 0.92, 4),
]


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_a_healthy_pcie_machine_passes(at, noise):
    """No false alarm: every shape, with and without noise."""
    for seed in range(3):
        findings = diagnosed(healthy(shape(at, noise, seed)))

        assert {finding.verdict for finding in findings} == {Verdict.PASS}
        assert {finding.cause for finding in findings} <= QUIET


@pytest.mark.parametrize(("model", "count", "links", "rate", "part", "per_gpu"), BOARDS, ids=lambda v: str(v)[:22])
def test_a_healthy_nvlink_machine_passes(model, count, links, rate, part, per_gpu):
    for seed in range(3):
        findings = diagnosed(nvlinked(count, model, links, rate, part, per_gpu=per_gpu, noise=0.03, seed=seed))

        assert {finding.verdict for finding in findings} == {Verdict.PASS}


@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_geforce_without_p2p_is_no_fault(at):
    findings = diagnosed(without_p2p(shape(at, 0.03), GEFORCE[at[3]]))

    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert "geforce-p2p-disabled" in {finding.cause for finding in findings}


@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_staged_copies_both_ways_at_once_share_what_one_way_has(at):
    """Only sums were measured, as in nccl#1127: no link is slow."""
    s = shape(at, 0.03)
    seen = without_p2p(s, GEFORCE[at[3]])
    both = s.rates(lambda i, j: (0.39 if s.pairs(i, j) else 0.54) * RAW[at[3]])
    seen["measured"] = {"p2p_bidir_gb_s": both}

    assert {f.verdict for f in diagnosed(seen)} == {Verdict.PASS}


@pytest.mark.parametrize("read_", ["idle", None])
def test_an_idle_link_is_no_fault(read_):
    """Generation 1 while the copies show generation 5: the reading was taken idle."""
    seen = healthy(shape((4, 2, 1, 5)))
    for gpu in seen["gpus"]:
        gpu["pcie"].update(gen=1, read=read_)

    assert {f.verdict for f in diagnosed(seen)} == {Verdict.PASS}


def test_half_the_lanes_on_every_card_is_how_some_boards_are_made():
    seen = healthy(shape((2, 1, 1, 3)))
    for gpu in seen["gpus"]:
        gpu["pcie"].update(width=8, gen=4, max_gen=4)
        gpu["model"] = "NVIDIA A10"
    findings = diagnosed(seen)

    assert {f.verdict for f in findings} == {Verdict.PASS}
    assert "narrow-by-design" in {f.cause for f in findings}
