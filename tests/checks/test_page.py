"""The page of the checks is current."""

from pathlib import Path

from tests.checks_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    """After a change of a check: python -m tests.checks_page > docs/checks.md"""
    assert (ROOT / "docs" / "checks.md").read_text(encoding="utf-8") == page()
