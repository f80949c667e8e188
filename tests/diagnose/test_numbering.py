"""The numbers of GPUs are chance: a public machine with its GPUs in another order has the same GPUs named."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from gpucheck.model import Finding
from tests.diagnose.cases import PLAIN, case
from tests.diagnose.results import diagnosed
from tests.shared import sampled

SEVERAL = [name for name in PLAIN if len(case(name)["observations"].get("gpus", ())) > 2]
LISTED = [name for name in SEVERAL if isinstance(case(name)["observations"]["gpus"], list)]


@pytest.mark.parametrize("name", sampled(LISTED, lambda number, _: number % 4 == 0))
def test_other_numbers_for_the_gpus_name_the_same_gpus(name: str) -> None:
    seen = case(name)["observations"]
    order = list(range(len(seen["gpus"])))
    random.Random(name).shuffle(order)
    new = {old: i for i, old in enumerate(order)}
    moved = {key: _moved(key, value, order, new) for key, value in seen.items()}

    assert stated(diagnosed(moved), order) == stated(diagnosed(seen), range(len(order)))


def stated(found: tuple[Finding, ...], old: Iterable[int]) -> list[tuple[str, str, str, list[str]]]:
    """Verdict, cause, check and subject, with the two GPUs of a pair in one order and each by its old number."""
    names = {f"GPU{i}": f"GPU{number}" for i, number in enumerate(old)}
    return sorted(
        (
            one.verdict.value,
            one.cause or "",
            one.check,
            sorted(names.get(word, word) for word in one.subject.partition(":")[2].split("-")),
        )
        for one in found
    )


def _moved(key: str, value: Any, order: list[int], new: dict[int, int]) -> Any:
    if isinstance(value, dict):
        return {name: _moved(name, inner, order, new) for name, inner in value.items()}
    if key == "gpu":
        return new[value]
    if not isinstance(value, list):
        return value
    if key == "gpus":
        return [value[old] for old in order] if isinstance(value[0], dict) else [new[i] for i in value]
    if key in ("pairs", "integrity_bad_pairs"):
        return [[new[a], new[b]] for a, b in value]
    if len(value) == len(order) and all(isinstance(row, list) and len(row) == len(order) for row in value):
        return [[value[a][b] for b in order] for a in order]
    return [_moved("", row, order, new) for row in value]
