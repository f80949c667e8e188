"""A host's report as CTRF JSON (ctrf.io): one test for each finding, for CI systems that read it.

Source: the Common Test Report Format, https://ctrf.io/docs/specification: results with tool, summary and tests; status
is passed, failed, skipped, pending or other; duration is in milliseconds, start and stop in milliseconds since 1970.
"""

import json
import math
from collections import Counter
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

import msgspec

from gpucheck.model import Finding, Report, Verdict, by_root, where
from gpucheck.printable import folded, indented, one_line, printable
from gpucheck.render.words import observed

SPEC = "1.0.0"
# CTRF has no warning. As in JUnit, WARN is failed; what could not be checked is other, which no summary calls a pass.
STATUS = {
    Verdict.PASS: "passed",
    Verdict.WARN: "failed",
    Verdict.FAIL: "failed",
    Verdict.UNKNOWN: "other",
    Verdict.SKIP: "skipped",
}
STATUSES = ("passed", "failed", "pending", "skipped", "other")


def to_ctrf(report: Report) -> str:
    """Write the report."""
    tests = [*_tests(report), *_unproven(report)]
    counts = Counter(test["status"] for test in tests)
    start = _milliseconds(report.started)
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPEC,
        "results": {
            "tool": {"name": "gpucheck", "version": report.versions.get("gpucheck") or "unknown"},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in STATUSES},
                "start": start,
                "stop": start + _duration(report.seconds),
            },
            "tests": tests,
            "environment": {
                "osPlatform": "linux",
                "osVersion": printable(report.system.os_name),
                "osRelease": printable(report.system.kernel),
                "extra": _extra(report),
            },
        },
    }
    return json.dumps(msgspec.to_builtins(document), indent=2) + "\n"  # ASCII: no foreign character reaches a terminal


def _tests(report: Report) -> list[dict[str, Any]]:
    """Findings of one step follow each other and bear the time of all of it: each gets its share."""
    roots = {check: root for root, checks in by_root(report.findings)[1].items() for check in checks}
    tests: list[dict[str, Any]] = []
    for seconds, group in groupby(report.findings, key=lambda finding: finding.seconds):
        findings = list(group)
        share = round(_duration(seconds or 0.0) / len(findings))
        for finding in findings:
            root = roots.get(finding.check) if finding.because_of is not None else None
            tests.append(_test(finding, share, root))
    return tests


def _test(finding: Finding, duration: int, root: str | None) -> dict[str, Any]:
    """root: the check whose finding is the reason that this one was not run."""
    status = "skipped" if root is not None else STATUS[finding.verdict]
    test: dict[str, Any] = {
        "name": one_line(f"{finding.check} {finding.subject}"),
        "status": status,
        "duration": duration,
        "suite": [f"gpucheck.{one_line(finding.check)}"],
        "rawStatus": finding.verdict.value,
    }
    if root is not None:
        return {**test, "message": f"not run: see the findings of {root}"}
    if finding.verdict is not Verdict.PASS:
        test["message"] = one_line(folded(": ".join(filter(None, (where(finding), observed(finding))))))
        lines = (f"why: {finding.why}" if finding.why else "", f"fix: {finding.fix}" if finding.fix else "")
        test["trace"] = "\n".join(indented(line) for line in (*lines, *finding.evidence) if line)
    known = {
        "cause": finding.cause,
        "action": finding.action,
        "owner": finding.owner,
        "gpu_index": finding.gpu_index,
        "gpu_uuid": finding.gpu_uuid,
    }
    return {**test, "extra": {key: value for key, value in known.items() if value is not None}}


def _unproven(report: Report) -> list[dict[str, Any]]:
    """What the level includes and this run did not show: skipped, for nothing is known to be wrong with it."""
    return [
        {
            "name": one_line(text),
            "status": "skipped",
            "duration": 0,
            "suite": ["gpucheck.not-proven"],
            "message": "not proven by this run",
        }
        for text in dict.fromkeys(report.not_proven)
    ]


def _extra(report: Report) -> dict[str, Any]:
    extra: dict[str, Any] = {"host": printable(report.host), "verdict": report.verdict.value}
    if report.simulation is not None:
        extra["SIMULATED"] = printable(", ".join((report.simulation.profile, *report.simulation.faults)))
    elif report.simulated:
        extra["SIMULATED"] = True
    return extra


def _duration(seconds: float) -> int:
    """Milliseconds; 0 if a report does not hold a finite time."""
    return round(seconds * 1000) if math.isfinite(seconds * 1000) else 0


def _milliseconds(started: str) -> int:
    """0 where the report does not hold a date."""
    try:
        at = datetime.fromisoformat(started)
        return round((at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
