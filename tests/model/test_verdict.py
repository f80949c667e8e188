import pytest

from gpucheck.model import Finding, Verdict, worst

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


@pytest.mark.parametrize(
    ("parts", "whole"),
    [([P], P), ([P, S], P), ([P, U], U), ([P, U, W], W), ([P, U, W, F], F), ([], U), ([S, S], U)],
)
def test_the_worst_part_decides(parts, whole):
    """FAIL outranks WARN outranks UNKNOWN; SKIP never counts; zero evidence is UNKNOWN."""
    assert worst(parts) is whole


def test_strict_lifts_not_knowing_above_a_warning():
    """Whoever schedules jobs on the answer wants "could not look" to count."""
    assert worst([P, U, W], strict=True) is U
    assert worst([P, U, W, F], strict=True) is F


@pytest.mark.parametrize("verdict", [W, F, U])
def test_finding_other_than_pass_needs_why_and_fix(verdict):
    with pytest.raises(ValueError, match="must have why"):
        Finding(check="c", verdict=verdict, subject="host", fix="do")
    with pytest.raises(ValueError, match="must have a fix"):
        Finding(check="c", verdict=verdict, subject="host", why="because")


def test_skip_without_why_is_an_error():
    with pytest.raises(ValueError, match="must have why"):
        Finding(check="c", verdict=S, subject="host")
