import pytest

from gpucheck.model import Finding, Verdict, worst
from gpucheck.model.finding import FAIL_ON, exit_status

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


@pytest.mark.parametrize(
    ("parts", "whole"), [([P], P), ([P, S], P), ([P, U], U), ([P, U, W], W), ([P, U, W, F], F), ([], U), ([S, S], U)]
)
def test_the_worst_part_decides(parts, whole):
    """FAIL outranks WARN outranks UNKNOWN; SKIP never counts; zero evidence is UNKNOWN."""
    assert worst(parts) is whole


@pytest.mark.parametrize(
    ("verdicts", "of_each"),
    [([P, S], (0, 0, 0)), ([S], (3, 3, 0)), ([P, U], (3, 3, 0)), ([P, W], (1, 0, 0)), ([W, U], (1, 3, 0))],
)
def test_fail_on_chooses_what_is_no_success(verdicts, of_each):
    """Whoever schedules jobs may accept a warning, and not "could not look"; a failure is never accepted."""
    assert tuple(exit_status(verdicts, fail_on) for fail_on in ("warn", "unknown", "fail")) == of_each
    assert {exit_status([*verdicts, F], fail_on) for fail_on in FAIL_ON} == {2}


@pytest.mark.parametrize("verdict", [W, F, U])
def test_finding_other_than_pass_needs_why_and_fix(verdict):
    with pytest.raises(ValueError, match="must have why"):
        Finding(check="c", verdict=verdict, subject="host", fix="do")
    with pytest.raises(ValueError, match="must have a fix"):
        Finding(check="c", verdict=verdict, subject="host", why="because")


def test_skip_without_why_is_an_error():
    with pytest.raises(ValueError, match="must have why"):
        Finding(check="c", verdict=S, subject="host")
