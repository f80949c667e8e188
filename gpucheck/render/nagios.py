"""A host's report as one line for Nagios, Icinga and Naemon, with performance data after the bar.

Format: Monitoring Plugins development guidelines. The exit status of gpucheck is already theirs.
"""

from collections.abc import Iterator

from gpucheck.model import Finding, Report, Verdict
from gpucheck.render.words import WORST_FIRST, counts_line, printable, value

STATE = {Verdict.PASS: "OK", Verdict.WARN: "WARNING", Verdict.FAIL: "CRITICAL", Verdict.UNKNOWN: "UNKNOWN"}
# Findings named on the line; monitoring systems cut long ones.
SHOWN = 3


def to_nagios(report: Report) -> str:
    """``GPUCHECK STATE - what is wrong | performance data``; without a bar or a line break of the host's making."""
    mark = "SIMULATED " if report.simulated else ""
    summary = _summary(report)
    return f"GPUCHECK {STATE[report.verdict]} - {mark}{summary} | {' '.join(_perfdata(report))}\n"


def _summary(report: Report) -> str:
    bad = [f for v in WORST_FIRST for f in report.findings if f.verdict is v and v not in (Verdict.PASS, Verdict.SKIP)]
    named = [_named(finding) for finding in bad[:SHOWN]]
    more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    return _one_line("; ".join([*named, *more]) or counts_line(report.counts))


def _named(finding: Finding) -> str:
    where = "" if finding.subject == "host" else f" {finding.subject}"
    seen = "" if finding.seen is None else f" {value(finding, finding.seen)}"
    cause = f" ({finding.cause})" if finding.cause else ""
    return f"{finding.check}{where}:{seen}{cause}"


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ").replace("\t", " ").replace("|", "/")


def _perfdata(report: Report) -> Iterator[str]:
    """'label'=value[unit];warn;crit;min: any failure is critical, any warning a warning."""
    counts = report.counts
    yield f"fail={counts.get('fail', 0)};;0;0"
    yield f"warn={counts.get('warn', 0)};0;;0"
    yield f"unknown={counts.get('unknown', 0)};;;0"
    yield f"pass={counts.get('pass', 0)};;;0"
    yield f"time={report.seconds:g}s;;;0"
