"""Real pastes from public places, each read to what its source says of the machine."""

import json
from typing import Any

import msgspec
import pytest

from gpucheck.run.pastes import diagnosis
from tests.imports.pastes.reading import CASES, accused, kinds, read


def _within(wanted: Any, found: Any, where: str = "") -> None:
    """Every value of `wanted` is in `found`; lists of the same length, element by element."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key} is missing"
            _within(value, found[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(found), where
        for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
            _within(one, other, f"{where}[{i}]")
    else:
        assert found == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), where


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_real_paste_is_read_as_its_source_says(case):
    expect = case["expect"]
    reading = read(case["raw"])
    assert set(expect["kinds"]) <= kinds(case["raw"])
    unread = sum(one.last_line - one.first_line + 1 for one in reading.unread)
    assert unread <= expect.get("unread_max", 0), reading.unread
    found = diagnosis([reading], sources=(case["id"],), model=expect.get("gpu"))
    said = {finding.cause for finding in found.findings if finding.cause}
    said |= {other.cause for finding in found.findings for other in finding.alternatives}
    for wanted in expect.get("causes_any", ()):
        assert said & set(wanted), f"none of {wanted}"
    assert not accused(found) & set(expect.get("causes_never", ()))
    text = str((found.findings, found.looked_at)).lower()
    for words in expect.get("text_any", ()):
        assert any(word in text for word in words), f"none of {words}"
    if "verdict" in expect:
        assert found.verdict.value in expect["verdict"], found.findings
    _within(expect.get("observations", {}), json.loads(msgspec.json.encode(found.observations)))
