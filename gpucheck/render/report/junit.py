"""A host's report as JUnit: a suite for the host, a case a finding, numbers as properties."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from gpucheck.model import Finding, Report, Verdict, by_root, follows
from gpucheck.printable import folded, of_printable, one_line
from gpucheck.render import junit
from gpucheck.render.copies.measured import by_class, copies, trainings
from gpucheck.render.junit import Case, Suite
from gpucheck.render.words import count_models, describe_simulation, headline


@of_printable
def to_junit(report: Report) -> str:
    name = "gpucheck verify (SIMULATED)" if report.simulated else "gpucheck verify"
    cases = (*_cases(report), *_unproven(report))
    suite = Suite(report.host, cases, report.host, report.started, tuple(_properties(report)))
    return junit.write(name, [suite])


def _with_time_and_root(report: Report) -> Iterator[tuple[Finding, float, str | None]]:
    """Yield each finding with its seconds, and where it follows from another one, which and why, as text.

    Findings of one step follow each other and bear the time of all of it: each gets its share, so that the sum is true.
    """
    faults, unrun = by_root(report.findings)
    not_run = {check: f"not run: see the findings of {root}" for root, checks in unrun.items() for check in checks}
    parts = {id(one): _part(one, fault.lead) for fault in faults for one in fault.also}
    for seconds, group in groupby(report.findings, key=lambda finding: finding.seconds):
        findings = list(group)
        for finding in findings:
            root = not_run.get(finding.check) if finding.because_of is not None and not follows(finding) else None
            yield finding, (seconds or 0.0) / len(findings), parts.get(id(finding), root)


def _part(finding: Finding, lead: Finding) -> str:
    return one_line(folded(f"{headline(finding)} (same fault as {lead.check} {lead.subject})"))


def _cases(report: Report) -> Iterator[Case]:
    """A name stands once in its class, or CI would merge the two."""
    seen: Counter[tuple[str, str]] = Counter()
    for finding, seconds, root in _with_time_and_root(report):
        key = finding.check, finding.subject
        seen[key] += 1
        name = finding.subject if seen[key] == 1 else f"{finding.subject} ({seen[key]})"
        classname = f"gpucheck.{finding.check}"
        if root is not None:
            yield Case(name, classname, Verdict.SKIP, root, seconds=seconds)
        else:
            yield junit.case(finding, name=name, classname=classname, seconds=seconds)


def _unproven(report: Report) -> Iterator[Case]:
    """What the level includes and this run did not show: skipped, for nothing is known to be wrong with it."""
    for text in dict.fromkeys(report.not_proven):
        yield Case(one_line(text), "gpucheck.not-proven", Verdict.SKIP, "not proven by this run")


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    if report.simulation is not None:
        yield "SIMULATED", describe_simulation(report.simulation)
    yield "system", f"{report.system.os_name}, kernel {report.system.kernel}, {report.system.arch}"
    yield from ((name, version) for name, version in report.versions.items() if version)
    if report.topology is not None:
        yield "gpus", ", ".join(count_models(report.topology.gpus))
    yield from _numbers(report)


def _numbers(report: Report) -> Iterator[tuple[str, str]]:
    found = copies(report)
    for rates in by_class(found) if found else ():
        name = f"p2p_uni_gb_s[{rates.cls}]"
        yield f"{name} pairs", str(rates.pairs)
        yield f"{name} slowest", f"{rates.slowest:g}"
        yield f"{name} median", f"{rates.middle:g}"
        if rates.expected is not None:
            yield f"{name} expected", f"{rates.expected:g}"
    if found:
        yield from ((f"integrity {name}", str(number)) for name, number in found.integrity.items())
    for run in trainings(report):
        name = " ".join(filter(None, (run.step, run.variant)))
        if run.loss_first is not None and run.loss_last is not None:
            yield f"{name} loss", f"{run.loss_first:g} to {run.loss_last:g}"
        if run.performance and run.performance.samples_per_s:
            yield f"{name} samples_per_s", f"{sum(run.performance.samples_per_s):.1f}"
