"""What a finding asks for, and of whom: filled in from the table of causes for a whole report."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from gpucheck.model.finding import Action, Finding, Owner
from gpucheck.model.finding.verdict import Verdict

QUIET = (Verdict.PASS, Verdict.SKIP)
# These interrupt jobs or take a part out: not on the evidence of a check that could not look.
DISRUPTIVE: frozenset[Action] = frozenset({"reset-gpu", "reboot", "power-cycle", "replace"})


class Advised(Protocol):
    """The part of a cause that is for programs."""

    @property
    def action(self) -> Action:
        """The first step that changes anything."""

    @property
    def owner(self) -> Owner:
        """Who carries it out."""


def with_actions(findings: Iterable[Finding], causes: Mapping[str, Advised]) -> tuple[Finding, ...]:
    """Return the findings with their action and owner. causes: by key.

    A finding that states its action keeps it, unless the evidence does not support it: a part is replaced on certain
    evidence only, and UNKNOWN interrupts no job unless its cause is certain. A pass or a skip asks for nothing. WARN
    and FAIL without a known cause need a person.
    """
    return tuple(_with_action(finding, causes.get(finding.cause or "")) for finding in findings)


def _with_action(finding: Finding, cause: Advised | None) -> Finding:
    owner = finding.owner or (cause.owner if cause else "node")
    if finding.verdict in QUIET:
        action: Action = "none"
    elif finding.action or cause:
        action = _supported(finding.action or (cause.action if cause else "none"), finding)
    else:
        action = "none" if finding.verdict is Verdict.UNKNOWN else "contact-support"
    if (finding.action, finding.owner) == (action, owner):
        return finding
    return replace(finding, action=action, owner=owner)


def _supported(action: Action, finding: Finding) -> Action:
    """The action, or a milder one where the evidence is not enough for it."""
    if finding.confidence == "certain":
        return action
    if finding.verdict is Verdict.UNKNOWN:
        return "none" if action in DISRUPTIVE else action
    return "contact-support" if action == "replace" else action
