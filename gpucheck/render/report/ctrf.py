"""A host's report as CTRF JSON (ctrf.io): one test for each finding, for CI systems that read it.

Source: the Common Test Report Format, https://ctrf.io/docs/specification: results with tool, summary and tests; status
is passed, failed, skipped, pending or other; duration is in milliseconds, start and stop in milliseconds since 1970.
"""

import json
import math
from collections import Counter
from typing import Any

import msgspec

from gpucheck.model import Finding, Report, Verdict
from gpucheck.printable import folded, indented, one_line, printable
from gpucheck.render.report.junit import with_time_and_root
from gpucheck.render.words import describe_simulation, headline, timestamp

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
    tests = [_test(finding, _milliseconds(time), root) for finding, time, root in with_time_and_root(report)]
    tests += _unproven(report)
    counts = Counter(test["status"] for test in tests)
    start = _milliseconds(timestamp(report.started) or 0.0)
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPEC,
        "results": {
            "tool": {"name": "gpucheck", "version": report.versions.get("gpucheck") or "unknown"},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in STATUSES},
                "start": start,
                "stop": start + _milliseconds(report.seconds),
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


def _test(finding: Finding, duration: int, root: str | None) -> dict[str, Any]:
    """root: from which finding this one follows, as text."""
    status = "skipped" if root is not None else STATUS[finding.verdict]
    test: dict[str, Any] = {
        "name": one_line(f"{finding.check} {finding.subject}"),
        "status": status,
        "duration": duration,
        "suite": [f"gpucheck.{one_line(finding.check)}"],
        "rawStatus": finding.verdict.value,
    }
    if root is not None:
        return {**test, "message": root}
    if finding.verdict is not Verdict.PASS:
        test["message"] = one_line(folded(headline(finding)))
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
        extra["SIMULATED"] = printable(describe_simulation(report.simulation))
    elif report.simulated:
        extra["SIMULATED"] = True
    return extra


def _milliseconds(seconds: float) -> int:
    """0 if a report does not hold a finite time."""
    return round(seconds * 1000) if math.isfinite(seconds * 1000) else 0
