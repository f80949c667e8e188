"""A host's report as text (worst first, quiet about passes) and as JSON."""

from collections.abc import Iterator

import click
import msgspec

from gpucheck.model import Finding, Report, Verdict
from gpucheck.render.words import (
    WORST_FIRST,
    counts_line,
    printable,
    simulated_mark,
    value,
    verdict_word,
)


def to_json(report: Report) -> str:
    """The outside contract, indented for people who read it with less."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def to_text(report: Report, *, verbose: bool = False) -> str:
    """The report for a terminal. With verbose, passes are spelled out and every finding shows its evidence."""
    lines = [*_head(report), ""]
    for verdict in WORST_FIRST:
        findings = [finding for finding in report.findings if finding.verdict is verdict]
        if verdict is Verdict.PASS and not verbose:
            lines += _passes(findings)
        elif verdict is Verdict.SKIP and not verbose:
            lines += [_skip(group) for group in alike(findings)]
        else:
            for group in alike(findings):
                lines += _finding(group, verbose=verbose)
    lines += ["", _last(report)]
    return printable_lines(lines)


def printable_lines(lines: list[str]) -> str:
    """Join lines; colour codes are ours, everything else of a host was cleaned before."""
    return "\n".join(lines) + "\n"


def _head(report: Report) -> Iterator[str]:
    mark = f"  {simulated_mark(_simulation(report))}" if report.simulated else ""
    yield click.style(f"gpucheck verify  {printable(report.host)}", bold=True) + mark
    system, versions = report.system, report.versions
    yield printable(
        f"{system.os_name}, kernel {system.kernel}, {system.arch}"
        + "".join(f", {kind}" for kind in (system.virtual, system.container) if kind)
    )
    parts = [f"driver {versions['driver']}" if versions.get("driver") else "no driver"]
    parts += [f"{name} {versions[name]}" for name in ("cuda", "torch") if versions.get(name)]
    if report.topology is not None:
        names = [gpu.name or "GPU" for gpu in report.topology.gpus]
        parts += [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    yield printable(", ".join(parts))
    if report.simulation is not None:
        for stand_in in report.simulation.stand_ins:
            yield f"{simulated_mark()} stands in: {printable(stand_in)}"


def _simulation(report: Report) -> str:
    if report.simulation is None:
        return ""
    faults = f" with {', '.join(report.simulation.faults)}" if report.simulation.faults else ""
    return printable(f"hardware: {report.simulation.profile}{faults}")


def alike(findings: list[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several subjects or checks, together: one cause is one block, not 56 lines."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        same = (finding.seen, finding.wanted, finding.unit, finding.cause, finding.why, finding.fix)
        groups.setdefault(same if finding.verdict is not Verdict.PASS else (len(groups),), []).append(finding)
    return list(groups.values())


def _finding(group: list[Finding], *, verbose: bool) -> Iterator[str]:
    finding = group[0]
    wanted = f", wanted {value(finding, finding.wanted)}" if finding.wanted is not None else ""
    checks = ", ".join(dict.fromkeys(f.check for f in group))
    subjects = ", ".join(dict.fromkeys(f.subject for f in group if f.subject != "host"))
    said = f"{value(finding, finding.seen) if finding.seen is not None else 'not known'}{wanted}"
    yield (f"{verdict_word(finding.verdict)} {checks:<10}  " + printable(": ".join(filter(None, (subjects, said)))))
    indent = " " * 8
    if finding.verdict is not Verdict.PASS:
        yield f"{indent}why    {printable(finding.why)}"
    if finding.fix and finding.verdict is not Verdict.SKIP:
        yield f"{indent}do     {printable(finding.fix)}"
    if finding.cause:
        yield f"{indent}cause  {finding.cause} ({finding.confidence or 'possible'})"
    if verbose or finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        for line in dict.fromkeys(line for f in group for line in f.evidence):
            yield f"{indent}saw    {printable(line)}"


def _skip(group: list[Finding]) -> str:
    """One line: what was not judged, and why."""
    checks = ", ".join(dict.fromkeys(f.check for f in group))
    some = f" ({len(group)})" if len(group) > 1 else ""
    return f"{verdict_word(Verdict.SKIP)} {checks}{some}: {printable(group[0].why)}"


def _passes(findings: list[Finding]) -> Iterator[str]:
    names = [finding.check for finding in findings]
    if names:
        counted = (f"{name} ({names.count(name)})" if names.count(name) > 1 else name for name in dict.fromkeys(names))
        yield f"{verdict_word(Verdict.PASS)} {', '.join(counted)}"


def _last(report: Report) -> str:
    mark = f"  {simulated_mark()}" if report.simulated else ""
    unproven = printable(f" (not proven: {'; '.join(report.not_proven)})") if report.not_proven else ""
    return f"{verdict_word(report.verdict, 0)}{unproven}  {counts_line(report.counts)}  in {report.seconds:.1f} s{mark}"
