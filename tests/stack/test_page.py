"""The page of the rules is made from the code and the tables, and is current."""

import pytest

from gpucheck.knowledge import tables
from gpucheck.knowledge._load import FOLDER
from gpucheck.stack.text import rules_page, statements
from tests.stack.regenerate import PAGE


def test_the_page_is_current():
    """After a change of a rule: gpucheck stack rules -o docs/stack-rules.md."""
    assert PAGE.read_text(encoding="utf-8") == rules_page()


def test_every_rule_has_a_row_and_code_that_carries_it_out():
    """R1 to R25, no gap, and no rule in the code that the page does not know."""
    rules = [f"R{number}" for number in range(1, 26)]

    assert list(tables.rules()) == rules
    assert set(statements()) == set(rules)


@pytest.mark.parametrize(("rule", "row"), tables.rules().items())
def test_a_rule_names_known_sources_and_tables(rule, row):
    assert row.source
    assert set(row.source) <= set(tables.sources())
    assert {f"{name}.yml" for name in row.tables} <= {path.name for path in FOLDER.glob("*.yml")}


def test_a_statement_is_a_sentence_of_its_own():
    for rows in statements().values():
        for _, sentence in rows:
            assert sentence[0].isupper()
            assert sentence.endswith(".")
