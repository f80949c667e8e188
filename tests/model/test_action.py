"""Action and owner of a finding: what the cause says, no more than the evidence supports."""

import pytest

from gpucheck.knowledge import causes
from gpucheck.model import Finding, Verdict, with_actions

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


def test_it_is_the_same_the_second_time():
    once = with_actions([Finding(check="c", subject="host", verdict=Verdict.FAIL, cause="xid", **BAD)], causes())
    assert with_actions(once, causes()) == once
    assert with_actions(once, causes())[0] is once[0]
