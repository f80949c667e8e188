"""A host's report for Kubernetes: a condition of the node per domain, and labels, for the scripts of a node.

``gpucheck.kubernetes/1 VERDICT COUNT``, a line per condition and label, ``end``:

    condition GpuNvlinkUnhealthy True nvlink-down gpucheck:nvlink-down g2 17/18 reset-gpu
    label gpucheck.io/verdict=fail
"""

import re
from collections.abc import Iterator

from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import actions, conditions
from gpucheck.model import Finding, Report, Verdict
from gpucheck.render.findings import Group, troubles
from gpucheck.render.machine.slurm import reason

SCHEMA = "gpucheck.kubernetes/1"
# Without a known cause, the GPU is what cannot be relied on.
OTHER = "GpuUnhealthy"
LABEL = "gpucheck.io/"
# Of a label's value.
MOST = 63


def to_kubernetes(report: Report) -> str:
    """Return conditions and labels. A condition is True if a check failed, else Unknown if any check is UNKNOWN."""
    lines = [*_conditions(report), *_labels(report)]
    return "\n".join((f"{SCHEMA} {report.verdict.value} {len(lines)}", *lines, "end", ""))


def _conditions(report: Report) -> Iterator[str]:
    failed: dict[str, Group] = {}
    for group in troubles(report):
        condition = _condition(group.first) if group.verdict is Verdict.FAIL else None
        if condition is not None:
            failed.setdefault(condition, group)
    # Whatever could not be evaluated may belong to any of them: without a driver, no NVLink was looked at.
    calm = "Unknown" if any(finding.verdict is Verdict.UNKNOWN for finding in report.findings) else "False"
    for condition in filter(None, conditions().values()):
        worst = failed.get(condition)
        if worst is None:
            yield f"condition {condition} {calm} " + ("NotEvaluated" if calm == "Unknown" else "NoFailure")
        else:
            yield f"condition {condition} True {_key(worst.first)} {reason(worst.findings, simulated=report.simulated)}"


def _condition(finding: Finding) -> str | None:
    if finding.owner == "user" or finding.action is None or not actions()[finding.action].condition:
        return None
    cause = causes().get(finding.cause or "")
    return OTHER if cause is None else conditions()[cause.domain]


def _labels(report: Report) -> Iterator[str]:
    yield f"label {LABEL}verdict={report.verdict.value}"
    if report.simulated:
        yield f"label {LABEL}hardware=SIMULATED"
    worst = next((group.first for group in troubles(report)), None)
    if worst is not None and worst.verdict in (Verdict.FAIL, Verdict.WARN):
        yield f"label {LABEL}cause={_key(worst)}"
        yield f"label {LABEL}action={worst.action or 'none'}"


def _key(finding: Finding) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", (finding.cause or finding.check).lower())[:MOST].strip("-") or "unknown"
