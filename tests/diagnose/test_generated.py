"""Machines of flows: no false alarm, faults are named, and the numbering of GPUs changes nothing."""

import copy
import random
from typing import Any

import pytest

from gpucheck.model import Finding, Verdict
from tests.diagnose.flows import machine
from tests.diagnose.results import BAD, diagnosed, named, verdict
from tests.shared import sampled

pytestmark = pytest.mark.slow
SEEDS = sampled(range(0, 500, 50), lambda number, _: number % 5 == 0)


@pytest.mark.parametrize("first", SEEDS)
def test_a_healthy_machine_is_not_accused_and_passes_where_all_of_it_was_read(first: int) -> None:
    for drawn in (one for one in map(machine, range(first, first + 50)) if not one.faults):
        found = diagnosed(drawn.observations)

        assert verdict(found) not in BAD, (drawn.seed, found)
        assert drawn.level != "rich" or verdict(found) is Verdict.PASS, (drawn.seed, found)


def test_a_fault_is_seen_and_named_where_all_of_the_machine_was_read() -> None:
    """Nine of ten: two faults at once may hide one another."""
    faulty = [one for one in map(machine, range(200)) if one.visible and one.level == "rich"]
    found = [diagnosed(one.observations) for one in faulty]

    assert sum(verdict(one) in BAD for one in found) >= 0.9 * len(faulty) > 20
    assert sum(bool(named(one) & drawn.faults) for one, drawn in zip(found, faulty, strict=True)) >= 0.9 * len(faulty)


@pytest.mark.parametrize("seed", range(25))
def test_other_numbers_for_the_gpus_name_the_same_gpus(seed: int) -> None:
    seen = machine(seed).observations
    if not isinstance(seen["gpus"], list):
        pytest.skip("its GPUs have no names")
    order = list(range(len(seen["gpus"])))
    random.Random(seed).shuffle(order)
    new = {old: i for i, old in enumerate(order)}
    moved = {key: _moved(key, value, order, new) for key, value in copy.deepcopy(seen).items()}

    assert stated(diagnosed(moved), order) == stated(diagnosed(seen), range(len(order)))


def stated(found: tuple[Finding, ...], old: Any) -> list[tuple[str, str, str, list[str]]]:
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
    if key == "gpus" and isinstance(value, list):
        return [value[old] for old in order] if isinstance(value[0], dict) else [new[i] for i in value]
    if isinstance(value, list) and (key in ("matrix", "p2p_access") or key.endswith("_gb_s")):
        return [[value[a][b] for b in order] for a in order]
    if key in ("pairs", "integrity_bad_pairs"):
        return [[new[a], new[b]] for a, b in value]
    if key == "gpu":
        return new[value]
    if isinstance(value, dict):
        return {name: _moved(name, inner, order, new) for name, inner in value.items()}
    if key in ("uplinks", "host_device", "flows", "collectives"):
        return [{name: _moved(name, inner, order, new) for name, inner in row.items()} for row in value]
    return value
