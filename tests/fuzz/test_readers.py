"""A tenth of a second of fuzzing every second target, with the same inputs in every run of one tree.

``make test-more`` takes all targets and fifteen times as many inputs, ``make fuzz`` inputs that no run has seen before.
"""

from pathlib import Path

import pytest

from tests.fuzz import runner
from tests.fuzz.cases import as_they_are
from tests.fuzz.outcome import outcome
from tests.fuzz.results import described
from tests.fuzz.target import Target, all_targets, chosen
from tests.fuzz.worker import Plan
from tests.shared import sampled

SEED = 1
SECONDS = (0.1, 1.5)
TARGETS = [(target,) for target in all_targets()]
# Inputs that make fuzz found: TARGET.NUMBER, each a defect once.
FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("seconds", sampled(SECONDS, (0,)))
@pytest.mark.parametrize(
    "target",
    sampled(((one,) for one in all_targets()), lambda number, _: number % 2 == 0),
    ids=lambda target: target.name,
)
def test_hostile_input_is_refused_or_read_cleanly_and_in_time(target: Target, seconds: float, tmp_path):
    """Only documented errors, on one clean line; clean outputs of every format; bounded time and memory."""
    cases = len(as_they_are(target)) + int(target.rate * seconds)

    result = runner.run(Plan([target], SEED, 0.0, cases, 1, tmp_path))

    assert result.inputs == {target.name: cases}
    assert [described(found) for found in result.found] == []


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_an_input_that_was_a_defect_is_none(path):
    (target,) = (one for one in chosen([path.stem]) if one.name == path.stem)

    assert outcome(target, path.read_bytes()) is None
