"""The diagnosis of observations, and what its findings name."""

import json
from collections.abc import Iterable
from typing import Any

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.model import Finding, Verdict, worst

BAD = (Verdict.WARN, Verdict.FAIL)


def diagnosed(seen: dict[str, Any]) -> tuple[Finding, ...]:
    return diagnose(read(json.dumps(seen)))


def verdict(found: tuple[Finding, ...]) -> Verdict:
    return worst(finding.verdict for finding in found)


def accused(found: tuple[Finding, ...]) -> set[str]:
    """Causes of WARN and FAIL."""
    return {f.cause for f in found if f.cause and f.verdict in BAD}


def named(findings: Iterable[Finding]) -> set[str]:
    """Causes of findings, and of their alternatives."""
    return {cause for f in findings for cause in (f.cause, *(other.cause for other in f.alternatives)) if cause}
