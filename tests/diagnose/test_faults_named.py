"""SIMULATED machines with one fault each: the cause is named whatever the size, numbering, noise or gaps."""

import copy
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.model import Finding, Verdict
from tests.diagnose.faulty import ALIKE, FAULTS, SHAPES, shape
from tests.diagnose.machines import RAW, healthy, permuted, slow_device
from tests.diagnose.results import BAD, diagnosed, verdict
from tests.shared import sampled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_is_named(name):
    machine, cause = FAULTS[name]

    named_right(name, cause, diagnosed(machine()))


def named_right(name: str, cause: set[str], found: tuple[Finding, ...]) -> None:
    """The cause is named, or is an alternative of one that the same numbers fit; no other cause is stated."""
    wrong = [f for f in found if f.verdict is not Verdict.PASS]

    assert wrong, found
    assert {f.cause for f in wrong} <= cause | ALIKE.get(name, set()), [(f.check, f.cause, f.why) for f in wrong]
    assert cause <= {f.cause for f in wrong} | {a.cause for f in found for a in f.alternatives}


@pytest.mark.parametrize("name", sampled(sorted(FAULTS), lambda number, _: number % 3 == 0))
def test_the_numbering_of_gpus_changes_nothing(name):
    machine, cause = FAULTS[name]
    seen = machine()
    for seed in range(2):
        order = list(range(len(seen["gpus"])))
        random.Random(seed).shuffle(order)
        found = diagnosed(permuted(seen, order))

        named_right(name, cause, found)
        assert verdict(found) is verdict(diagnosed(seen))


@pytest.mark.parametrize("name", sampled(sorted(FAULTS), lambda number, _: number % 5 == 0))
def test_a_missing_key_makes_no_other_cause_likely(name):
    """One key taken away at a time: less may be known, but nothing wrong may be stated as certain."""
    machine, cause = FAULTS[name]
    for path, seen in without_each_key(machine()):
        wrong = (f for f in diagnosed(seen) if f.verdict is not Verdict.PASS)
        sure = {f.cause for f in wrong if f.confidence != "possible"}

        assert sure - {None} <= cause | ALIKE.get(name, set()), path


def without_each_key(seen: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in (None, "host", "measured"):
        for key in list(seen if block is None else seen[block]):
            less = copy.deepcopy(seen)
            del (less if block is None else less[block])[key]
            found.append((f"{block}.{key}", less))
    for key in ("model", "bus_id", "numa_node", "pcie", "bar1_mib"):
        less = copy.deepcopy(seen)
        for gpu in less["gpus"]:
            gpu.pop(key, None)
        found.append((f"gpus.{key}", less))
    for key in ("gen", "width", "max_gen", "max_width", "read"):
        less = copy.deepcopy(seen)
        for gpu in less["gpus"]:
            gpu.get("pcie", {}).pop(key, None)
        found.append((f"gpus.pcie.{key}", less))
    return found


@pytest.mark.parametrize("at", [at for at in SHAPES if at[0] > 2], ids=str)
@pytest.mark.parametrize("lost", ["width", "gen"])
def test_the_slow_card_is_the_one_that_is_named(at, lost):
    for reported in (True, False):
        findings = diagnosed(slow_device(shape(at, 0.03), lost, reported))

        assert {f.subject for f in findings if f.verdict is not Verdict.PASS} == {"gpu:0000:11:00.0"}, [
            (f.check, f.cause, f.subject) for f in findings
        ]


@settings(max_examples=30, deadline=None)
@given(at=st.sampled_from(SHAPES), seed=st.integers(0, 10**6), loss=st.floats(0.3, 0.9))
def test_a_pair_that_lost_a_third_is_never_missed(at, seed, loss):
    """Whatever else: one direct pair far below its expectation is no pass."""
    s = shape(at, 0.03, seed)
    seen = healthy(s)
    del seen["gpus"][0]["pcie"]["read"]
    low = 0.55 if at[2] == 1 else 0.24
    for i, j in ((0, 1), (1, 0)):
        seen["measured"]["p2p_uni_gb_s"][i][j] = round(RAW[at[3]] * min(low, 0.86 * (1 - loss)), 2)

    assert verdict(diagnosed(seen)) in BAD
