"""A host's report as one line for Nagios, Icinga and Naemon, with performance data after the bar.

Format: Monitoring Plugins development guidelines. The exit status of gpucheck is already theirs.
"""

from collections.abc import Iterator

from gpucheck.model import Report, Verdict
from gpucheck.printable import folded, of_printable
from gpucheck.render.findings import Group, troubles
from gpucheck.render.words import counts_line, plural

STATE = {Verdict.PASS: "OK", Verdict.WARN: "WARNING", Verdict.FAIL: "CRITICAL", Verdict.UNKNOWN: "UNKNOWN"}
# Findings named on the line; monitoring systems cut long ones.
SHOWN = 3


@of_printable
def to_nagios(report: Report) -> str:
    """``GPUCHECK STATE - what is wrong | performance data``; without a bar or a line break of the host's making."""
    mark = "SIMULATED " if report.simulated else ""
    summary = _summary(report)
    return f"GPUCHECK {STATE[report.verdict]} - {mark}{summary} | {' '.join(_perfdata(report))}\n"


def _summary(report: Report) -> str:
    bad = troubles(report)
    left = sum(len(group.follow) for group in bad)
    named = [_named(group) for group in bad[:SHOWN]]
    more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    more += [f"{plural(left, 'check')} not run because of this"] if left else []
    # A monitoring system shows this line only: it must state what an OK does not cover.
    unproven = f" (not proven: {'; '.join(report.not_proven)})" if report.not_proven else ""
    return folded(("; ".join([*named, *more]) or counts_line(report.counts)) + unproven).replace("|", "/")


def _named(group: Group) -> str:
    where = f" {group.where}" if group.where else ""
    cause = f" ({group.first.cause})" if group.first.cause else ""
    return f"{', '.join(group.checks)}{where}: {group.seen}{cause}"


def _perfdata(report: Report) -> Iterator[str]:
    """'label'=value[unit];warn;crit;min: any failure is critical, any warning a warning."""
    counts = report.counts
    yield f"fail={counts.get('fail', 0)};;0;0"
    yield f"warn={counts.get('warn', 0)};0;;0"
    yield f"unknown={counts.get('unknown', 0)};;;0"
    yield f"pass={counts.get('pass', 0)};;;0"
    yield f"time={report.seconds:g}s;;;0"
