"""Golden plans: system x GPU generation. After a change: python -m tests.stack.regenerate, then read the diff.

One plan a package manager is kept whole, the others as what differs from a similar one (key base).
"""

import pytest

from tests.stack import regenerate

HINT = "if this is meant: python -m tests.stack.regenerate, and read the diff"


@pytest.mark.parametrize(("system", "gpus"), regenerate.PLANS)
def test_a_plan_is_the_one_that_was_reviewed(system, gpus):
    """Package names, versions and repositories change only by a reviewed diff."""
    path = regenerate.FOLDER / system / f"{gpus}.yml"

    made = regenerate.kept(regenerate.golden(system, gpus), regenerate.base(system, gpus))
    assert made == path.read_text(encoding="utf-8"), HINT


@pytest.mark.parametrize("row", regenerate.specs(), ids=lambda row: row["name"])
def test_a_specification_changes_of_a_plan_what_was_reviewed(row):
    """Of the whole document that the roles apply, and of its text."""
    assert regenerate.changed(row) == row, HINT


@pytest.mark.parametrize("row", regenerate.questions(), ids=lambda row: " ".join(map(str, list(row.values())[:-1])))
def test_a_question_has_the_answer_that_was_worked_out(row):
    """From the sources: the set with its reasons, or the first conflict with its facts and the change that helps."""
    assert regenerate.answered(row) == row, HINT


@pytest.mark.parametrize("name", regenerate.LAB)
def test_a_lab_plan_is_the_one_that_was_reviewed(name):
    """The whole document that the roles apply."""
    assert regenerate.lab_plan(name) == (regenerate.FOLDER / f"{name}.json").read_text(encoding="utf-8"), HINT


def test_no_golden_file_is_left_over():
    """A system or GPU set that was taken out takes its files along."""
    kept = {f"{system}/{gpus}.yml" for system, gpus in regenerate.PLANS}
    kept |= {f"{name}.json" for name in regenerate.LAB} | {"specs.yml", "resolve.yml"}

    assert {str(p.relative_to(regenerate.FOLDER)) for p in regenerate.FOLDER.rglob("*") if p.is_file()} == kept
