"""The numbers of GPUs are chance: a public machine with its GPUs in another order has the same GPUs named."""

import json
import random
from collections.abc import Iterable

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.model import Finding
from gpucheck.run.pastes.merge import spread
from tests.diagnose.cases import PLAIN, case
from tests.shared import sampled

SEVERAL = [name for name in PLAIN if len(read(json.dumps(case(name)["observations"])).gpus) > 2]


@pytest.mark.parametrize("name", sampled(SEVERAL, lambda number, _: number % 4 == 0))
def test_other_numbers_for_the_gpus_name_the_same_gpus(name: str) -> None:
    seen = read(json.dumps(case(name)["observations"]))
    order = list(range(len(seen.gpus)))
    random.Random(name).shuffle(order)
    moved = spread(seen, [order.index(old) for old in range(len(order))], len(order))

    assert stated(diagnose(moved), order) == stated(diagnose(seen), range(len(order)))


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
