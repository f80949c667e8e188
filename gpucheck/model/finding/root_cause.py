"""Which findings belong together: those that point to the finding of the root cause, and those that stand alone."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

GOOD = (Verdict.PASS, Verdict.SKIP)
# Verdicts that a fault can have, the worst first.
FOUND = (Verdict.FAIL, Verdict.WARN)


class Evaluated(Protocol):
    """A finding, or what was read of one."""

    @property
    def verdict(self) -> Verdict:
        """Its verdict."""

    @property
    def because_of(self) -> str | None:
        """The check of its root cause."""


class Fault(NamedTuple):
    """A finding on its own. also: what other checks found of the same fault, in their order."""

    lead: Finding
    also: tuple[Finding, ...] = ()


def follows(finding: Evaluated) -> bool:
    """Whether this is a WARN or FAIL that another finding leads: a part of its fault, and none of its own."""
    return finding.verdict in FOUND and finding.because_of is not None


def counted(findings: Iterable[Evaluated]) -> dict[str, int]:
    """Return the number of findings by verdict, every verdict present; a fault counts once."""
    verdicts = [finding.verdict for finding in findings if not follows(finding)]
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict}


def by_root(findings: Iterable[Finding]) -> tuple[list[Fault], dict[str, list[str]]]:
    """Return the findings that stand alone with their parts, and by check of the root cause the checks not run.

    A finding whose root cause is not among the findings, or is milder, stands alone.
    """
    findings = list(findings)
    roots = _roots(findings)
    leads = [one for one in findings if one.verdict in FOUND and not follows(one)]
    own: list[Finding] = []
    also: dict[int, list[Finding]] = {}
    unrun: dict[str, dict[str, None]] = {}
    for finding in findings:
        root = _root(finding, roots)
        if follows(finding) and (lead := _lead(finding, leads)) is not None:
            also.setdefault(id(lead), []).append(finding)
        elif finding.verdict in FOUND or root is None:
            own.append(finding)
        else:
            unrun.setdefault(root, {})[finding.check] = None
    faults = [Fault(finding, tuple(also.get(id(finding), ()))) for finding in own]
    return faults, {root: list(checks) for root, checks in unrun.items()}


def _lead(part: Finding, leads: list[Finding]) -> Finding | None:
    """The finding that a part points to and that is at least as bad; of several that of the same cause."""
    place = part.because_of, part.because_of_subject
    named = [one for one in leads if (one.check, one.subject) == place and _rank(one) <= _rank(part)]
    return min(named, key=lambda one: one.cause != part.cause, default=None)


def _rank(finding: Finding) -> int:
    return FOUND.index(finding.verdict)


def _roots(findings: list[Finding]) -> dict[str, str | None]:
    """By check with a problem: the check that it follows from, None where one of its findings is its own."""
    roots: dict[str, str | None] = {}
    for finding in findings:
        if finding.verdict not in GOOD:
            roots[finding.check] = finding.because_of if roots.get(finding.check, "") is not None else None
    return roots


def _root(finding: Finding, roots: dict[str, str | None]) -> str | None:
    """The last of a chain: acs follows from inventory, and that from driver."""
    check = finding.because_of
    passed = {finding.check}
    while check is not None and check in roots and check not in passed:
        passed.add(check)
        after = roots[check]
        if after is None or after not in roots:
            return check
        check = after
    return None
