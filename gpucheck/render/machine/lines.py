"""A host's report as lines for programs that show little: Nagios, Icinga and Naemon, and Slurm.

Nagios gets one line with performance data after the bar (Monitoring Plugins development guidelines); the exit status of
gpucheck is already theirs. For Slurm a reason for each finding, in a fixed grammar:

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

from gpucheck.model import Finding, Report, Verdict
from gpucheck.printable import folded, of_printable, ranges
from gpucheck.render.findings import troubles
from gpucheck.render.words import counts_line, plural

STATE = {Verdict.PASS: "OK", Verdict.WARN: "WARNING", Verdict.FAIL: "CRITICAL", Verdict.UNKNOWN: "UNKNOWN"}
# warn;crit;min of performance data: any failure is critical, any warning a warning.
LIMITS = {"fail": ";0;0", "warn": "0;;0", "unknown": ";;0", "pass": ";;0"}
# Findings named on the line; monitoring systems cut long ones.
SHOWN = 3


@of_printable
def to_nagios(report: Report) -> str:
    """``GPUCHECK STATE - what is wrong | performance data``; without a bar or a line break of the host's making."""
    mark = "SIMULATED " if report.simulated else ""
    summary = _summary(report)
    performance = [f"{name}={report.counts.get(name, 0)};{limits}" for name, limits in LIMITS.items()]
    performance.append(f"time={report.seconds:g}s;;;0")
    return f"GPUCHECK {STATE[report.verdict]} - {mark}{summary} | {' '.join(performance)}\n"


def _summary(report: Report) -> str:
    bad = troubles(report)
    left = sum(len(group.follow) for group in bad)
    named = []
    for group in bad[:SHOWN]:
        cause = f" ({group.first.cause})" if group.first.cause else ""
        named.append(f"{', '.join(group.checks)} {group.where}".rstrip() + f": {group.seen}{cause}")
    more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    more += [f"{plural(left, 'check')} not run because of this"] if left else []
    # A monitoring system shows this line only: it must state what an OK does not cover.
    unproven = f" (not proven: {'; '.join(report.not_proven)})" if report.not_proven else ""
    return folded(("; ".join([*named, *more]) or counts_line(report.counts)) + unproven).replace("|", "/")


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
    starts = (f"{one.first.verdict.value} {one.first.owner or 'node'} {one.first.action or 'none'}" for one in groups)
    reasons = (reason(one.findings, simulated=report.simulated) for one in groups)
    lines = map(" ".join, zip(starts, reasons, strict=True))
    return "\n".join((f"{SCHEMA} {report.verdict.value} {len(groups)}", *lines, "end", ""))


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
