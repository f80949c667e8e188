"""Findings that only follow from another one are told apart by data, never by their words."""

import pytest

from gpucheck.knowledge.causes import with_actions
from gpucheck.model import Finding, Verdict, by_root, worst
from gpucheck.model.finding import FAIL_ON, exit_status

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP


@pytest.mark.parametrize(
    ("findings", "own", "follow"),
    [
        ([("bar1", U, "driver"), ("driver", F, None), ("numa", U, None)], ["driver", "numa"], {"driver": ["bar1"]}),
        # acs needs a GPU on the bus, which inventory compares with NVML, which needs the driver.
        (
            [("acs", U, "inventory"), ("inventory", U, "driver"), ("driver", U, None)],
            ["driver"],
            {"driver": ["acs", "inventory"]},
        ),
        # Without its root cause, or with one that passes, a finding is on its own.
        ([("bar1", U, "driver")], ["bar1"], {}),
        ([("bar1", U, "driver"), ("driver", P, None)], ["bar1", "driver"], {}),
        # A check with a finding of its own is the root of what follows it.
        (
            [("inventory", U, "driver"), ("inventory", F, None), ("driver", U, None), ("acs", U, "inventory")],
            ["inventory", "driver"],
            {"driver": ["inventory"], "inventory": ["acs"]},
        ),
        ([("a", U, "b"), ("b", U, "a")], ["a", "b"], {}),
    ],
)
def test_what_follows_is_listed_below_the_check_of_the_root_cause(findings, own, follow):
    made = [
        Finding(check=check, verdict=verdict, subject="host", because_of=because_of, why="w", fix="f")
        for check, verdict, because_of in findings
    ]
    faults, follows = by_root(made)

    assert ([fault.lead.check for fault in faults], follows) == (own, follow)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"cause": "nvlink-down", "confidence": "certain"}, ("reset-gpu", "node")),
        ({"cause": "gpu-busy", "confidence": "certain", "verdict": W}, ("wait", "user")),
        # A check that states an action is believed; what passes or was not checked asks for none.
        (
            {"cause": "row-remap", "confidence": "certain", "action": "replace", "owner": "site"},
            ("replace", "site"),
        ),
        *[({"cause": "expected-limit", "verdict": verdict}, ("none", "user")) for verdict in (P, S)],
        *[
            ({"cause": "nvlink-down", "verdict": verdict, "action": "reset-gpu"}, ("none", "node"))
            for verdict in (P, S)
        ],
        # A part is replaced on certain evidence only.
        *[
            ({"cause": "host-memory-error", "confidence": confidence}, ("contact-support", "site"))
            for confidence in ("likely", "possible", None)
        ],
        ({"cause": "host-memory-error", "confidence": "certain"}, ("replace", "site")),
        # What could not be checked interrupts no job without certain evidence.
        ({"cause": "gpu-lost", "confidence": "possible", "verdict": U}, ("none", "node")),
        ({"cause": "wedged-driver", "confidence": "certain", "verdict": U}, ("reboot", "node")),
        ({"cause": "acs-redirect", "confidence": "possible", "verdict": U}, ("change-setting", "node")),
        # An unknown cause needs support unless the check could not run.
        ({}, ("contact-support", "node")),
        ({"cause": "of-a-later-release"}, ("contact-support", "node")),
        ({"verdict": U}, ("none", "node")),
    ],
)
def test_action_and_owner_follow_from_cause_confidence_and_verdict(fields, asked):
    finding = Finding(**{"check": "c", "subject": "host", "verdict": F, "why": "it is", "fix": "do", **fields})
    (found,) = with_actions([finding])

    assert (found.action, found.owner) == asked


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
