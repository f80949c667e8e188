"""Reports of one host at different levels: quick checks copy and compute nothing, so they clear nothing of that."""

import pytest

from gpucheck.model import Verdict
from tests.fleet.reports import bad, merged, report

DAYS = [f"2026-11-{21 + day}T12:00:00+00:00" for day in range(3)]
WRONG = (bad("p2p-integrity", "silent-corruption"),)


def quick(day, **changes):
    return report("node07", started=DAYS[day], measurements={}, **changes)


def standard(day, **changes):
    return report("node07", started=DAYS[day], **changes)


@pytest.mark.parametrize("check", ["p2p-integrity", "compute-results", "collectives-results", "smoke-ddp"])
def test_quick_checks_do_not_clear_what_was_measured(check):
    fleet = merged(standard(0, findings=(bad(check, "silent-corruption"),)), quick(1))

    assert fleet.verdict is Verdict.FAIL
    assert f"found {check}, which node07.json did not measure" in fleet.problems[0].text


@pytest.mark.parametrize(
    "reports",
    [
        [standard(0, findings=WRONG), standard(1)],
        [standard(0, findings=WRONG), standard(1), quick(2)],
        [standard(0, findings=(bad("p2p-status"),)), quick(1)],
        [standard(0, findings=(bad("compute-mode"),)), quick(1)],
    ],
    ids=["measured-again", "measured-in-between", "a-quick-check", "a-quick-check-of-like-name"],
)
def test_what_was_looked_at_again_is_cleared(reports):
    assert merged(*reports).verdict is Verdict.PASS
