"""JUnit XML of hosts and fleets, as the strict schema (Jenkins xUnit, junit-10.xsd) allows it.

FAIL and WARN are failures, UNKNOWN is an error (the check could not look), SKIP is skipped, and so is what --fail-on
accepts, and what follows from a failure or an error of the same suite: one fault is not 24 errors.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.etree import ElementTree

from gpucheck.model import Finding, Report, Verdict, by_root, follows
from gpucheck.model.finding import FAIL_ON
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.printable import folded, indented, of_printable, one_line, printable
from gpucheck.render.words import count_models, describe_simulation, headline, observed

OUTCOME = {Verdict.FAIL: "failure", Verdict.WARN: "failure", Verdict.UNKNOWN: "error"}


class Case(NamedTuple):
    """One test case. message: one line; detail: the rest."""

    name: str
    classname: str
    verdict: Verdict
    message: str = ""
    detail: str = ""
    seconds: float = 0.0


def case(finding: Finding, *, name: str, classname: str, seconds: float) -> Case:
    """A finding as a case: where and what was seen is the message; why, the fix and the evidence are the detail."""
    if finding.verdict is Verdict.PASS:
        return Case(name, classname, finding.verdict, seconds=seconds)
    seen = observed(finding)
    cause = f"cause: {finding.cause} ({finding.confidence or 'possible'})" if finding.cause else ""
    action = f"action: {finding.action} (owner: {finding.owner})" if finding.action not in (None, "none") else ""
    why = "" if seen == finding.why else f"why: {finding.why}"
    evidence = (f"evidence: {line}" for line in finding.evidence)
    lines = (why, f"fix: {finding.fix}" if finding.fix else "", action, cause, *evidence)
    message = one_line(folded(headline(finding)))
    return Case(name, classname, finding.verdict, message, "\n".join(map(indented, filter(None, lines))), seconds)


def write(name: str, suites: Iterable[ElementTree.Element]) -> str:
    """The whole document."""
    root = ElementTree.Element("testsuites", {"name": name})
    root.extend(suites)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(one.get(key, "0")) for one in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def suite(
    host: str, cases: Sequence[Case], fail_on: str, started: str | None, facts: Mapping[str, str | None]
) -> ElementTree.Element:
    """The cases of a host. Control characters, which XML 1.0 cannot hold, are replaced."""
    wrong = {verdict: OUTCOME[verdict] for verdict in FAIL_ON[fail_on]}
    outcomes = [None if case.verdict is Verdict.PASS else wrong.get(case.verdict, "skipped") for case in cases]
    attributes = {
        "name": printable(host),
        "tests": str(len(cases)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "skipped": str(outcomes.count("skipped")),
        "time": f"{sum(case.seconds for case in cases):.3f}",
        "hostname": printable(host),
    }
    element = ElementTree.Element("testsuite", attributes | ({"timestamp": printable(started)[:19]} if started else {}))
    properties = [(printable(key), printable(text)) for key, text in facts.items() if text]
    listed = ElementTree.SubElement(element, "properties") if properties else element
    for key, text in properties:
        ElementTree.SubElement(listed, "property", {"name": key, "value": text})
    for case, outcome in zip(cases, outcomes, strict=True):
        named = {"classname": printable(case.classname), "name": printable(case.name), "time": f"{case.seconds:.3f}"}
        child = ElementTree.SubElement(element, "testcase", named)
        if outcome:
            child = ElementTree.SubElement(child, outcome, {"message": printable(case.message)})
            child.text = "\n".join(map(printable, case.detail.split("\n"))) or None
        if outcome and outcome != "skipped":
            child.set("type", case.verdict.value)
    return element


@of_printable
def to_junit(report: Report, fail_on: str = "warn") -> str:
    name = "gpucheck verify (SIMULATED)" if report.simulated else "gpucheck verify"
    # What the level includes and this run did not show is skipped, for nothing is known to be wrong with it.
    unproven = ((one_line(text), "gpucheck.not-proven") for text in dict.fromkeys(report.not_proven))
    cases = (*_cases(report), *(Case(*named, Verdict.SKIP, "not proven by this run") for named in unproven))
    system = f"{report.system.os_name}, kernel {report.system.kernel}, {report.system.arch}"
    facts = {"SIMULATED": describe_simulation(report.simulation), "system": system, **report.versions}
    facts["gpus"] = ", ".join(count_models(report.topology.gpus)) if report.topology else None
    return write(name, [suite(report.host, cases, fail_on, report.started, facts)])


def _with_time_and_root(report: Report) -> Iterator[tuple[Finding, float, str | None]]:
    """Yield each finding with its seconds, and where it follows from another one, which and why, as text.

    Findings of one step follow each other and bear the time of all of it: each gets its share, so that the sum is true.
    """
    faults, unrun = by_root(report.findings)
    not_run = {check: f"not run: see the findings of {root}" for root, checks in unrun.items() for check in checks}
    parts = {
        id(one): one_line(folded(f"{headline(one)} (same fault as {fault.lead.check} {fault.lead.subject})"))
        for fault in faults
        for one in fault.also
    }
    for seconds, group in groupby(report.findings, key=lambda finding: finding.seconds):
        findings = list(group)
        for finding in findings:
            root = not_run.get(finding.check) if finding.because_of is not None and not follows(finding) else None
            yield finding, (seconds or 0.0) / len(findings), parts.get(id(finding), root)


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
            yield case(finding, name=name, classname=classname, seconds=seconds)


def fleet_to_junit(fleet: FleetReport, fail_on: str = "warn") -> str:
    name = "gpucheck fleet (SIMULATED)" if fleet.simulated else "gpucheck fleet"
    return write(name, (_fleet_suite(row, fail_on) for row in fleet.hosts))


def _fleet_suite(row: FleetRow, fail_on: str) -> ElementTree.Element:
    cases = []
    for one in row.problems:
        name = one.check if one.subject == "host" else f"{one.check} {one.subject}"
        cases.append(case(one, name=name, classname=row.host, seconds=one.seconds or 0.0))
    if not cases:
        cases = [Case("verdict", row.host, row.verdict, "nothing is wrong" if row.verdict is Verdict.PASS else "")]
    simulation = row.simulation if row.simulated else None
    facts = {"gpus": row.gpus, "driver": row.driver, "system": row.system, "SIMULATED": simulation}
    return suite(row.host, cases, fail_on, row.started, facts)
