"""Inputs that make fuzz found: FOLDER/TARGET.NUMBER, each a defect once."""

from pathlib import Path

import pytest

from tests.fuzz.outcome import outcome
from tests.fuzz.target import chosen

FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_an_input_that_was_a_defect_is_none(path):
    (target,) = (one for one in chosen([path.stem]) if one.name == path.stem)

    assert outcome(target, path.read_bytes()) is None
