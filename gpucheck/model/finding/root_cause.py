"""Which findings only follow from another one: without a driver thirty checks have nothing to look at."""

from collections.abc import Iterable

from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

GOOD = (Verdict.PASS, Verdict.SKIP)


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
