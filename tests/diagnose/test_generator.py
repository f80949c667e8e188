"""The generator of machines is sound: repeatable, square, possible in physics, and accepted by the reader."""

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from gpucheck.diagnose import read
from tests.diagnose import figures, generator
from tests.diagnose.generator import Case, kinds, machine
from tests.diagnose.generator.faults import FAULTS
from tests.diagnose.generator.limits import LIMITS
from tests.diagnose.matching import is_true

TABLES = (
    *("p2p_uni_gb_s", "staged_uni_gb_s", "p2p_bidir_gb_s", "staged_bidir_gb_s"),
    *("p2p_latency_us", "staged_latency_us"),
)
ONE_WAY = TABLES[:2]
# GB/s of 16 lanes by PCIe generation, and of all NVLinks of the fastest GPU.
PCIE = {"Tesla": 15.75, "NVIDIA A": 31.5, "NVIDIA L": 31.5, "NVIDIA GeForce RTX 4090": 31.5}
FASTEST = 900.0


@cache
def cases(count: int) -> tuple[Case, ...]:
    return tuple(machine(seed) for seed in range(count))


def cells(case: Case, names=TABLES):
    measured = case.observations.get("measured", {})
    return [value for name in names for row in measured.get(name, []) for value in row if value is not None]


def test_same_seed_gives_same_machine():
    assert all(machine(case.seed) == case for case in cases(200))
    assert len({json.dumps(case.observations) for case in cases(200)}) == 200


def test_matrices_are_square_and_hollow():
    for case in cases(2000):
        seen = case.observations
        tables = [seen.get("matrix"), seen.get("p2p_status"), *(seen.get("measured", {}).get(name) for name in TABLES)]
        for table in filter(None, tables):
            assert [len(row) for row in table] == [len(case.gpus)] * len(case.gpus)
            assert all(table[i][i] in (None, "X") for i in range(len(table)))


def test_numbers_are_possible():
    """Finite, positive and rounded; latencies as published; no rate of a healthy machine above the raw rate."""
    for case in cases(2000):
        assert all(math.isfinite(value) and value > 0 and value == round(value, 2) for value in cells(case)), case.seed
        assert all(0.3 <= value <= 23 for value in cells(case, TABLES[4:])), case.seed
        gpus = case.observations["gpus"]
        model = str(gpus if isinstance(gpus, dict) else gpus[0])
        linked = case.kind in ("bridged", "mesh", "nvswitch")
        raw = FASTEST if linked else next((gb for part, gb in PCIE.items() if part in model), 63.0)
        assert case.faults or all(value < raw for value in cells(case, ONE_WAY)), (case.seed, raw)


def test_every_kind_fault_and_limit_occurs():
    found = Counter(cause for case in cases(2000) for cause in {cause for cause, _ in case.truth})

    assert set(found) == set(FAULTS) | LIMITS
    assert min(found[cause] for cause in FAULTS) >= 12
    assert {case.kind for case in cases(2000)} == set(kinds.KINDS)
    assert 0.45 < sum(not case.faults for case in cases(2000)) / 2000 < 0.55


def test_every_machine_is_readable_and_truth_names_its_gpus():
    for case in cases(500):
        seen = read(json.dumps(case.observations))
        names = {"host", *(f"gpu:{gpu}" for gpu in case.gpus), *(f"link:{bridge}" for bridge in case.behind)}
        names |= {f"pair:{a}-{b}" for i, a in enumerate(case.gpus) for b in case.gpus[i + 1 :]}

        assert len(seen.gpus) == len(set(case.gpus)) == len(case.gpus)
        assert {subject for _, subject in case.truth} <= names
        assert not case.tempting & {cause for cause, _ in case.truth}


def test_generator_imports_nothing_from_the_package_under_test():
    for path in Path(generator.__file__).parent.glob("*.py"):
        imported = [
            line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(("import", "from"))
        ]

        assert not [line for line in imported if "gpucheck" in line], path


CASE = Case(
    seed=0,
    kind="switched",
    level="rich",
    observations={},
    truth=frozenset(
        {
            ("uplink-downgraded", "link:s0"),
            ("uplink-downgraded", "pair:a-c"),
            ("pcie-width-reduced", "gpu:c"),
            ("vm-no-p2p", "host"),
        }
    ),
    tempting=frozenset(),
    gpus=("a", "b", "c"),
    behind={"s0": frozenset("ab"), "root": frozenset("ab"), "port": frozenset("c")},
)


@pytest.mark.parametrize(
    ("cause", "subject", "right"),
    [
        ("uplink-downgraded", "link:s0", True),
        ("uplink-downgraded", "link:root", True),
        ("uplink-downgraded", "link:port", False),
        ("uplink-downgraded", "gpu:a", True),
        ("uplink-downgraded", "gpu:c", False),
        ("uplink-downgraded", "pair:a-c", True),
        ("uplink-downgraded", "pair:a-b", False),
        ("uplink-downgraded", "host", True),
        ("pcie-width-reduced", "pair:b-c", True),
        ("pcie-width-reduced", "pair:a-b", False),
        ("pcie-width-reduced", "link:port", True),
        ("pcie-width-reduced", "gpu:a", False),
        ("vm-no-p2p", "pair:a-b", True),
        ("acs-redirect", "host", False),
        ("expected-limit", "pair:a-b", True),
        ("expected-limit", "pair:b-c", False),
        ("expected-limit", "host", False),
    ],
)
def test_statement_is_matched_with_truth(cause, subject, right):
    assert is_true(CASE, cause, subject) is right


def test_page_of_figures_states_what_public_machines_give():
    page = (Path(__file__).parents[2] / "docs" / "diagnose-figures.md").read_text(encoding="utf-8")

    assert figures.public() in page
