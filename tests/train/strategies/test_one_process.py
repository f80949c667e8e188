"""Strategies that drive all devices from one process, for real on CPU tensors."""

import pytest

from gpucheck.model import Verdict
from gpucheck.model.smoke import SmokeResult
from gpucheck.run.steps.train import evaluated
from gpucheck.train.transfer import POISON, SIZES, damage
from tests.train.real import ONE_PROCESS, run_all

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, SmokeResult]:
    return run_all(ONE_PROCESS, tmp_path_factory, processes=1)


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_nothing_is_found_where_nothing_is_wrong(runs, name):
    findings = evaluated(runs[name])
    assert {finding.verdict for finding in findings} == {Verdict.PASS, Verdict.SKIP}
    assert findings[-1].verdict is Verdict.SKIP
    assert str(findings[-1].seen).startswith(
        f"{runs[name].world_size} CPU devices, torch copies: this tests the software"
    )


@pytest.mark.parametrize("name", ["dp", "dp-three", "model-parallel"])
def test_devices_together_reach_what_one_reaches(runs, name):
    assert all(reference.max_abs_difference < 1e-6 for reference in runs[name].references)


def test_the_pipeline_is_compared_beside_the_plain_split(runs):
    names = [reference.name for reference in runs["model-parallel"].references]
    assert names == ["one device, layers split over 2", "one device, pipeline of 4 micro-batches"]


def test_dataparallel_on_cpus_does_not_pretend(runs):
    assert "torch's DataParallel needs two GPUs" in runs["dp"].placement_reason


def test_one_process_claims_nothing_about_ranks(runs):
    """Equal hashes of one rank with itself would be an empty pass."""
    assert not any("bit-equal on" in str(finding.seen) for finding in evaluated(runs["dp"]))


def test_every_size_is_copied_in_both_directions_and_checked(runs):
    copies = runs["transfer"].copies
    assert [(c.source, c.target, c.bytes) for c in copies] == [
        (source, target, size)
        for source, target in (("cpu buffer a", "cpu buffer b"), ("cpu buffer b", "cpu buffer a"))
        for size in SIZES
    ]
    assert all(c.wrong == 0 and c.checked_by == ("the receiver", "the host") for c in copies)
    assert "two buffers of host memory" in runs["transfer"].placement_reason


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (b"abcdefgh", (0, None, "none")),
        (POISON.to_bytes(8, "little"), (8, 0, "untouched")),
        (b"ab\0\0\0\0gh", (4, 2, "zeros")),
        (b"abcdXfgh", (1, 4, "other")),
    ],
)
def test_damage_is_named_by_how_it_looks(arrived, expected):
    assert damage(arrived, b"abcdefgh") == expected
