"""What ``make test`` takes of a large table has every row and every column of it; ``make test-more`` has the rest."""

import re
from pathlib import Path

import pytest

from tests import test_fault_matrix
from tests.cli import test_hostile_files, test_interrupted, test_killed_anywhere
from tests.diagnose import test_one_judge
from tests.processes import test_parent_death
from tests.shared import sampled

TOP = Path(__file__).parents[1]


def kept(values, in_sample):
    return [
        value for value, one in zip(values, sampled(values, in_sample), strict=True) if "more" not in marks(one.marks)
    ]


def marks(found):
    return {mark.name for mark in found}


def test_a_sample_is_the_whole_table_with_marks():
    whole = sampled([(1, "a"), 2, (3, "c")], lambda number, value: number == 0 or value == 2)

    assert [one.values for one in whole] == [(1, "a"), (2,), (3, "c")]
    assert [marks(one.marks) for one in whole] == [set(), set(), {"more"}]


def test_every_fault_is_on_one_machine():
    found = [cell.values[0]["fault"] for cell in test_fault_matrix.CELLS if "more" not in marks(cell.marks)]

    assert found == [row["fault"] for row in test_fault_matrix.ROWS]


def test_every_command_reads_hostile_files_and_every_kind_of_file_is_read():
    found = kept(test_hostile_files.PAIRS, test_hostile_files.in_sample)
    kinds = [[kind for command, kind in found if command == one] for one in test_hostile_files.COMMANDS]

    assert {kind for _, kind in found} == set(test_hostile_files.KINDS)
    assert min(map(len, kinds)) >= 5


def test_every_command_is_killed_and_every_signal_kills():
    found = kept(test_killed_anywhere.SEARCH, test_killed_anywhere.in_sample)

    assert sorted(command for command, _, _ in found) == sorted(test_killed_anywhere.COMMANDS)
    assert sorted(number for _, number, _ in found) == sorted(test_killed_anywhere.SIGNALS)


def test_every_fault_of_links_is_judged_twice():
    found = {fault for _, fault in kept(test_one_judge.CASES, test_one_judge.in_sample)}

    assert found >= set(test_one_judge.EVERYWHERE)


@pytest.mark.parametrize(("module", "name"), [(test_interrupted, "PHASES"), (test_parent_death, "AT_WORK")])
def test_every_kind_of_work_is_ended(module, name):
    (mark,) = [
        mark
        for test in vars(module).values()
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "parametrize" and len(mark.args[1]) == len(module.ENDS)
    ]

    assert {one.values[0] for one in mark.args[1] if "more" not in marks(one.marks)} == set(getattr(module, name))


def test_what_is_left_out_is_run_by_a_target_that_the_night_calls():
    """And test-all runs all of it with one command."""
    makefile = (TOP / "Makefile").read_text()
    nightly = (TOP / ".github/workflows/nightly.yml").read_text()
    (pattern,) = re.findall(r"^SEARCHES = .*grep -rlE --include='test_\*\.py' '(.*)' tests", makefile, re.MULTILINE)
    words = ("sampled(", "pytest.mark.more,", "pytest.mark.more\n")
    texts = {path: path.read_text() for path in (TOP / "tests").rglob("test_*.py") if path.name != Path(__file__).name}

    assert not [
        path for path, text in texts.items() if any(map(text.__contains__, words)) and not re.search(pattern, text)
    ]
    assert re.search(r"^test-all: test test-more test-labs ", makefile, re.MULTILINE)
    assert all(f"make {target}" in nightly for target in ("test-more", "test-labs"))
