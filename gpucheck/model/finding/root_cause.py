"""Which findings belong together: checks without anything to look at, and several checks that found one trouble."""

from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.model.finding import Finding
from gpucheck.model.finding.naming import bus_ids
from gpucheck.model.finding.verdict import Verdict

GOOD = (Verdict.PASS, Verdict.SKIP)
# Verdicts that a trouble can have, the worst first.
FOUND = (Verdict.FAIL, Verdict.WARN)


class Trouble(NamedTuple):
    """One cause at one place. lead: its worst finding. also: what other checks found of it, in their order."""

    lead: Finding
    also: tuple[Finding, ...] = ()


def by_trouble(findings: Iterable[Finding]) -> list[Trouble]:
    """Return each trouble once, in the order of the leading findings; a finding without a cause is one by itself.

    Two findings of one check are two troubles: the check reported them separately.
    """
    findings = list(findings)
    leads: dict[str, list[int]] = {}
    also: dict[int, list[int]] = {}
    for verdict in FOUND:
        # A cause of the host explains its GPUs, and a GPU the pairs that it is in.
        for wide in ("host", "gpu", ""):
            for place, finding in enumerate(findings):
                if finding.verdict is not verdict or not finding.cause or _width(finding) != wide:
                    continue
                of_cause = leads.setdefault(finding.cause, [])
                lead = next((at for at in of_cause if _is_part(finding, findings[at])), None)
                if lead is None:
                    of_cause.append(place)
                else:
                    also.setdefault(lead, []).append(place)
    parts = {place for places in also.values() for place in places}
    return [
        Trouble(finding, tuple(findings[at] for at in sorted(also.get(place, ()))))
        for place, finding in enumerate(findings)
        if place not in parts
    ]


def _width(finding: Finding) -> str:
    kind = finding.subject.partition(":")[0]
    return kind if kind in ("host", "gpu") else ""


def _is_part(finding: Finding, lead: Finding) -> bool:
    """Whether another check found the trouble of the leading finding, which is at least as bad."""
    if finding.check == lead.check:
        return False
    return lead.subject in ("host", finding.subject) or bool({*bus_ids(finding.subject)} & {*bus_ids(lead.subject)})


def by_root(findings: Iterable[Finding]) -> tuple[list[Finding], dict[str, list[str]]]:
    """Return the findings with a cause of their own, and by check of the root cause the checks that follow.

    A finding whose root cause is not among the findings (only some checks were run) is on its own.
    """
    findings = list(findings)
    roots = _roots(findings)
    own: list[Finding] = []
    follow: dict[str, dict[str, None]] = {}
    for finding in findings:
        root = _root(finding, roots)
        if root is None:
            own.append(finding)
        else:
            follow.setdefault(root, {})[finding.check] = None
    return own, {root: list(checks) for root, checks in follow.items()}


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
