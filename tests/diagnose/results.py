"""The diagnosis of observations, and what its findings name."""

import json
from collections.abc import Iterable
from typing import Any

from gpucheck.diagnose import evaluate, read
from gpucheck.model import Finding, Verdict, worst
from gpucheck.model.diagnosis.ranking import Judgement

BAD = (Verdict.WARN, Verdict.FAIL)


def diagnosed(seen: dict[str, Any]) -> Judgement:
    return evaluate(read(json.dumps(seen)))


def verdict(judgement: Judgement) -> Verdict:
    return worst(finding.verdict for finding in judgement.findings)


def accused(judgement: Judgement) -> set[str]:
    """Causes of WARN and FAIL."""
    return {f.cause for f in judgement.findings if f.cause and f.verdict in BAD}


def named(findings: Iterable[Finding]) -> set[str]:
    """Causes of findings, and of their alternatives."""
    return {cause for f in findings for cause in (f.cause, *(other.cause for other in f.alternatives)) if cause}
