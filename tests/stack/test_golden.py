"""Golden plans: system x GPU generation. After a change: python -m tests.stack.regenerate, then read the diff."""

import pytest

from tests.stack import regenerate

HINT = "if this is meant: python -m tests.stack.regenerate, and read the diff"


@pytest.mark.parametrize(("system", "gpus"), regenerate.PLANS)
def test_a_plan_is_the_one_that_was_reviewed(system, gpus):
    """Package names, versions and repositories change only by a reviewed diff."""
    path = regenerate.FOLDER / system / f"{gpus}.yml"

    assert regenerate.text(regenerate.golden(system, gpus)) == path.read_text(encoding="utf-8"), HINT


@pytest.mark.parametrize("name", regenerate.OPTIONS)
def test_a_plan_with_options_is_the_one_that_was_reviewed(name):
    """What only a site that asks for it gets."""
    path = regenerate.FOLDER / "options" / f"{name}.yml"

    assert regenerate.text(regenerate.option(name)) == path.read_text(encoding="utf-8"), HINT


@pytest.mark.parametrize("name", regenerate.LAB)
def test_a_lab_plan_is_the_one_that_was_reviewed(name):
    """The whole document that the roles apply."""
    assert regenerate.lab_plan(name) == (regenerate.FOLDER / f"{name}.json").read_text(encoding="utf-8"), HINT


def test_no_golden_file_is_left_over():
    """A system or GPU set that was taken out takes its files along."""
    kept = {f"{system}/{gpus}.yml" for system, gpus in regenerate.PLANS}
    kept |= {f"options/{name}.yml" for name in regenerate.OPTIONS}
    kept |= {f"{name}.json" for name in regenerate.LAB}

    assert {str(p.relative_to(regenerate.FOLDER)) for p in regenerate.FOLDER.rglob("*") if p.is_file()} == kept
