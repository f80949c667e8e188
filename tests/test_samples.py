"""What ``make test`` takes of a large table has every row and every column of it; ``make test-more`` has the rest."""

import re
from pathlib import Path

from tests.shared import sampled

TOP = Path(__file__).parents[1]


def marks(found):
    return {mark.name for mark in found}


def test_a_sample_is_the_whole_table_with_marks():
    whole = sampled([(1, "a"), 2, (3, "c")], lambda number, value: number == 0 or value == 2)

    assert [one.values for one in whole] == [(1, "a"), (2,), (3, "c")]
    assert [marks(one.marks) for one in whole] == [set(), set(), {"more"}]


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
