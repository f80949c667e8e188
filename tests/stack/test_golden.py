"""Golden plans: system x GPU generation. After a change: python -m tests.stack.regenerate, then read the diff.

One plan a package manager is kept whole, the others as what differs from a similar one (key base).
"""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.stack import regenerate

HINT = "if this is meant: python -m tests.stack.regenerate, and read the diff"


@pytest.mark.parametrize(("system", "gpus"), regenerate.PLANS)
def test_a_plan_is_the_one_that_was_reviewed(system, gpus):
    """Package names, versions and repositories change only by a reviewed diff."""
    path = regenerate.FOLDER / system / f"{gpus}.yml"

    made = regenerate.kept(regenerate.golden(system, gpus), regenerate.base(system, gpus))
    assert made == path.read_text(encoding="utf-8"), HINT


@pytest.mark.parametrize("name", regenerate.OPTIONS)
def test_a_plan_with_options_is_the_one_that_was_reviewed(name):
    """What only a site that asks for it gets."""
    path = regenerate.FOLDER / "options" / f"{name}.yml"

    made = regenerate.kept(regenerate.option(name), regenerate.option_base(name))
    assert made == path.read_text(encoding="utf-8"), HINT


def whole(path):
    """The plan that a file and its bases state."""
    kept = yaml.safe_load((regenerate.FOLDER / f"{path}.yml").read_text(encoding="utf-8"))
    return merged(whole(kept.pop("base")), kept) if "base" in kept else kept


def merged(before, changes):
    """The inverse of regenerate.difference."""
    changes = dict(changes)
    found = {key: value for key, value in before.items() if key not in changes.get("gone", [])}
    changes.pop("gone", None)
    for key, value in changes.items():
        inner = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if inner else value
    return found


def test_differences_state_every_plan_completely():
    """Nothing of a plan is lost in its file, also not the order in which components are installed."""
    plans = {f"{system}/{gpus}": regenerate.golden(system, gpus) for system, gpus in regenerate.PLANS}
    plans |= {f"options/{name}": regenerate.option(name) for name in regenerate.OPTIONS}

    for name, plan in plans.items():
        read, made = whole(name), yaml.safe_load(regenerate.text(plan))
        assert (name, read) == (name, made)
        assert list(read.get("packages", [])) == list(made.get("packages", []))


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(st.none() | st.lists(st.integers(0, 1), max_size=2), lambda inner: st.dictionaries(KEYS, inner))


@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_a_difference_has_all_that_its_base_lacks_or_has_too_much(before, after):
    assert merged(before, regenerate.difference(before, after)) == after


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
    kept |= {f"options/{name}.yml" for name in regenerate.OPTIONS}
    kept |= {f"{name}.json" for name in regenerate.LAB} | {"specs.yml", "resolve.yml"}

    assert {str(p.relative_to(regenerate.FOLDER)) for p in regenerate.FOLDER.rglob("*") if p.is_file()} == kept
