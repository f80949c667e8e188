"""The page of the checks is current, and lists what the checks report of every fault of the simulator."""

from pathlib import Path

import pytest

from gpucheck.checks import all_checks
from gpucheck.knowledge import causes
from gpucheck.model import Verdict
from tests.checks_page import page, reached
from tests.shared import from_yaml

ROOT = Path(__file__).parents[2]
ROWS = from_yaml(ROOT / "tests" / "data" / "fault_matrix.yml")
CHECKS = {check.name: check for check in all_checks()}
# With copies or work a check leads with the worst verdict of all, and links are evaluated under its name too.
EXPECTED = {
    (row["check"], row["verdict"], row["cause"]) for row in ROWS if row.get("check") in CHECKS and "steps" not in row
}


def test_the_page_is_current():
    """After a change of a check: python -m tests.checks_page > docs/checks.md"""
    assert (ROOT / "docs" / "checks.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_can_pass_and_names_known_causes(name):
    found = reached(CHECKS[name])

    assert Verdict.PASS in found.verdicts
    assert set(found.causes) <= causes().keys()


@pytest.mark.parametrize(("name", "verdict", "cause"), sorted(EXPECTED, key=str))
def test_verdict_and_cause_of_every_fault_are_listed(name, verdict, cause):
    """The causes of kernel messages come from tables."""
    found = reached(CHECKS[name])

    assert Verdict(verdict) in found.verdicts
    assert name == "kernel-log" or cause is None or cause in found.causes


def test_thresholds_have_a_value_and_a_comment():
    found = reached(CHECKS["shared-memory"]).thresholds
    values = {name: value for name, value, _ in found}

    assert values == {"ENOUGH": "1024 MiB", "FREE": "256 MiB", "TOO_SMALL": "128 MiB"}
    assert all(comment.endswith(".") for _, _, comment in found)
