"""Findings that only follow from another one are told apart by data, never by their words."""

import pytest

from gpucheck.knowledge import causes
from gpucheck.model import Finding, Verdict, by_root, with_actions, worst
from gpucheck.model.finding import FAIL_ON, exit_status


def finding(check, verdict=Verdict.UNKNOWN, because_of=None):
    return Finding(check=check, verdict=verdict, subject="host", because_of=because_of, why="w", fix="f")


def names(findings):
    own, follow = by_root(findings)
    return [fault.lead.check for fault in own], follow


def test_what_follows_is_listed_below_the_check_of_the_root_cause():
    found = names([finding("bar1", because_of="driver"), finding("driver", Verdict.FAIL), finding("numa")])

    assert found == (["driver", "numa"], {"driver": ["bar1"]})


def test_a_chain_ends_at_its_root():
    """acs needs a GPU on the bus, which inventory compares with NVML, which needs the driver."""
    chain = [finding("acs", because_of="inventory"), finding("inventory", because_of="driver"), finding("driver")]

    assert names(chain) == (["driver"], {"driver": ["acs", "inventory"]})


def test_without_its_root_cause_a_finding_is_on_its_own():
    assert names([finding("bar1", because_of="driver")]) == (["bar1"], {})


def test_a_root_that_passes_is_no_root_cause():
    found = names([finding("bar1", because_of="driver"), finding("driver", Verdict.PASS)])

    assert found == (["bar1", "driver"], {})


def test_a_check_with_a_finding_of_its_own_is_the_root_of_what_follows_it():
    mixed = [finding("inventory", because_of="driver"), finding("inventory", Verdict.FAIL), finding("driver")]

    assert names([*mixed, finding("acs", because_of="inventory")]) == (
        ["inventory", "driver"],
        {"driver": ["inventory"], "inventory": ["acs"]},
    )


def test_a_circle_ends():
    assert names([finding("a", because_of="b"), finding("b", because_of="a")])[1] == {}


BAD = {"why": "it is", "fix": "do"}


def asked(**fields):
    finding = Finding(**{"check": "c", "subject": "host", "verdict": Verdict.FAIL, **BAD, **fields})
    (found,) = with_actions([finding], causes())
    return found.action, found.owner


def test_the_cause_decides():
    assert asked(cause="nvlink-down", confidence="certain") == ("reset-gpu", "node")
    assert asked(cause="gpu-busy", confidence="certain", verdict=Verdict.WARN) == ("wait", "user")


def test_a_check_that_states_an_action_is_believed():
    assert asked(cause="row-remap", confidence="certain", action="replace", owner="site") == ("replace", "site")


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.SKIP])
def test_pass_requests_no_action(verdict):
    assert asked(cause="expected-limit", verdict=verdict) == ("none", "user")
    assert asked(cause="nvlink-down", confidence="certain", verdict=verdict, action="reset-gpu")[0] == "none"


@pytest.mark.parametrize("confidence", ["likely", "possible", None])
def test_a_part_is_replaced_on_certain_evidence_only(confidence):
    assert asked(cause="host-memory-error", confidence=confidence) == ("contact-support", "site")
    assert asked(cause="host-memory-error", confidence="certain") == ("replace", "site")


def test_what_could_not_be_checked_interrupts_no_job_without_certain_evidence():
    assert asked(cause="gpu-lost", confidence="possible", verdict=Verdict.UNKNOWN) == ("none", "node")
    assert asked(cause="wedged-driver", confidence="certain", verdict=Verdict.UNKNOWN) == ("reboot", "node")
    assert asked(cause="acs-redirect", confidence="possible", verdict=Verdict.UNKNOWN) == ("change-setting", "node")


def test_unknown_cause_needs_support_unless_the_check_could_not_run():
    assert asked() == asked(cause="of-a-later-release") == ("contact-support", "node")
    assert asked(verdict=Verdict.UNKNOWN) == ("none", "node")


P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


@pytest.mark.parametrize(
    ("parts", "whole"), [([P], P), ([P, S], P), ([P, U], U), ([P, U, W], W), ([P, U, W, F], F), ([], U), ([S, S], U)]
)
def test_the_worst_part_decides(parts, whole):
    """FAIL outranks WARN outranks UNKNOWN; SKIP never counts; zero evidence is UNKNOWN."""
    assert worst(parts) is whole


@pytest.mark.parametrize(
    ("verdicts", "of_each"),
    [([P, S], (0, 0, 0)), ([S], (3, 3, 0)), ([P, U], (3, 3, 0)), ([P, W], (1, 0, 0)), ([W, U], (1, 3, 0))],
)
def test_fail_on_chooses_what_is_no_success(verdicts, of_each):
    """Whoever schedules jobs may accept a warning, and not "could not look"; a failure is never accepted."""
    assert tuple(exit_status(verdicts, fail_on) for fail_on in ("warn", "unknown", "fail")) == of_each
    assert {exit_status([*verdicts, F], fail_on) for fail_on in FAIL_ON} == {2}


@pytest.mark.parametrize("verdict", [W, F, U])
def test_finding_other_than_pass_needs_why_and_fix(verdict):
    with pytest.raises(ValueError, match="must have why"):
        Finding(check="c", verdict=verdict, subject="host", fix="do")
    with pytest.raises(ValueError, match="must have a fix"):
        Finding(check="c", verdict=verdict, subject="host", why="because")
