"""Every real machine comes out as its owner found: verdict, causes that are said, and nothing falsely accused."""

from pathlib import Path

import pytest

from gpucheck.imports import ImportProblem
from gpucheck.knowledge import causes
from gpucheck.model import Verdict
from tests.diagnose import figures
from tests.diagnose.cases import (
    HELD_OUT,
    HELD_OUT_MISSES,
    LEARNED,
    MISSES,
    NAMES,
    STATES,
    TUNED_MISSES,
    UNREAD,
    answer,
    case,
    held_out,
)

# Both lists shrink when the judge or a reader learns.
KNOWN: dict[str, tuple[type[Exception], str]] = {name: (AssertionError, why) for name, why in MISSES.items()}
KNOWN |= {name: (ImportProblem, why) for name, why in UNREAD}
JUDGED = [
    pytest.param(name, marks=pytest.mark.xfail(strict=True, raises=KNOWN[name][0], reason=KNOWN[name][1]))
    if name in KNOWN
    else name
    for name in NAMES
]


@pytest.mark.parametrize("name", JUDGED)
def test_a_real_machine_is_diagnosed_as_its_owner_found(name: str) -> None:
    said = answer(name)

    assert said.verdict in case(name)["expect"]["verdict"], str(said)
    assert not said.missed, str(said)
    assert not said.accused, str(said)


def test_every_case_is_complete() -> None:
    for name in NAMES:
        found = case(name)
        expect = found["expect"]
        wanted, never = {cause for group in expect["causes_any"] for cause in group}, set(expect["causes_never"])
        assert found["state"] in STATES, name
        assert found["source"], name
        assert found.get("observations") or found.get("pastes"), name
        assert "note" in expect, name
        assert set() < set(expect["verdict"]) <= {verdict.value for verdict in Verdict}, name
        assert wanted | never <= set(causes()), name
        assert not wanted & never, name


def test_machines_that_come_out_wrong_are_listed_apart() -> None:
    """They are UNKNOWN, neither accused nor passed; the sick and the sound are both held out."""
    out = [name for name in NAMES if name.startswith(HELD_OUT)]

    assert set(HELD_OUT_MISSES) <= {name for name in out if held_out(name)}
    assert not set(TUNED_MISSES) & {name for name in out if held_out(name)}
    assert len(TUNED_MISSES) <= 10
    assert {answer(name).verdict for name in MISSES} == {"unknown"}
    assert len(out) == 96
    assert all(sum(case(name)["state"] == state for name in out) >= 10 for state in STATES)


def test_a_machine_that_the_judge_learned_from_says_so() -> None:
    """So that nobody takes what is right about it for a blind result."""
    said = {name for name in NAMES if "The judge was changed for this machine: " in case(name)["expect"]["note"]}

    assert {name for name in said if name.startswith(HELD_OUT)} == LEARNED


def test_page_of_figures_states_what_public_machines_give():
    page = (Path(__file__).parents[2] / "docs" / "diagnose-figures.md").read_text(encoding="utf-8")

    assert figures.public() in page
