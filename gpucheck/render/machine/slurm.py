"""A host's report for Slurm's prolog, epilog and health check: a reason for each finding, in a fixed grammar.

::

    gpucheck.slurm/1 fail 2
    fail node reset-gpu gpucheck:nvlink-down g2 17/18 reset-gpu
    warn site contact-support gpucheck:pcie-errors g1 contact-support
    end

The first line has the verdict and the number of findings, each further line verdict, owner, action and reason of one.
Without the last line the answer is not complete. ``sinfo -R`` shows twenty characters of a reason: these distinguish
the causes.
"""

import math
import re

from gpucheck.model import Finding, Report
from gpucheck.printable import ranges
from gpucheck.render.findings import Group, troubles

SCHEMA = "gpucheck.slurm/1"
REASON = re.compile(
    r"gpucheck:(?P<cause>[a-z0-9-]{1,40})"
    r"(?: g(?P<gpus>\d+(?:[-,]\d+)*))?"
    r"(?: (?P<seen>[0-9.e+-]+)/(?P<wanted>[0-9.e+-]+))?"
    r" (?P<action>none|wait|change-setting|restart-service|reset-gpu|reboot|power-cycle|replace|contact-support)"
    r"(?P<simulated> SIMULATED)?"
)
# The worst come first; a scheduler acts on one.
MOST = 50


def to_slurm(report: Report) -> str:
    """Return the answer, at most MOST findings."""
    groups = troubles(report)[:MOST]
    lines = (_line(group, simulated=report.simulated) for group in groups)
    return "\n".join((f"{SCHEMA} {report.verdict.value} {len(groups)}", *lines, "end", ""))


def _line(group: Group, *, simulated: bool) -> str:
    finding = group.first
    start = f"{finding.verdict.value} {finding.owner or 'node'} {finding.action or 'none'}"
    return f"{start} {reason(group.findings, simulated=simulated)}"


def reason(findings: tuple[Finding, ...], *, simulated: bool) -> str:
    """Return the reason of equal findings, as REASON has it: where the cause is not known, the name of the check."""
    first = findings[0]
    key = re.sub(r"[^a-z0-9-]+", "-", (first.cause or first.check).lower())[:40]
    indexes = {i for finding in findings for i in (finding.gpu_index, finding.peer_index) if i is not None}
    numbers = f"{first.seen:g}/{first.wanted:g}" if _is_number(first.seen) and _is_number(first.wanted) else ""
    parts = (
        f"gpucheck:{key or 'unknown'}",
        f"g{ranges(sorted(indexes))}" if indexes else "",
        numbers,
        first.action or "none",
        "SIMULATED" if simulated else "",
    )
    return " ".join(filter(None, parts))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
