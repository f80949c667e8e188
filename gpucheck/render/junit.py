"""JUnit XML as the strict schema (Jenkins xUnit, junit-10.xsd) allows it.

FAIL and WARN are failures, UNKNOWN is an error (the check could not look), SKIP is skipped, and so is what follows from
a failure or an error of the same suite: one fault is not 24 errors.
"""

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree

from gpucheck.model import Finding, Verdict
from gpucheck.printable import folded, indented, one_line, printable
from gpucheck.render.words import headline, observed

OUTCOME = {Verdict.FAIL: "failure", Verdict.WARN: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}


class Case(NamedTuple):
    """One test case. message: one line; detail: the rest."""

    name: str
    classname: str
    verdict: Verdict
    message: str = ""
    detail: str = ""
    seconds: float = 0.0


class Suite(NamedTuple):
    """One suite: a host, or a subject. properties: numbers and facts."""

    name: str
    cases: tuple[Case, ...]
    hostname: str = ""
    started: str | None = None
    properties: tuple[tuple[str, str], ...] = ()


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


def write(name: str, suites: Iterable[Suite]) -> str:
    """The whole document. Control characters, which XML 1.0 cannot hold, are replaced."""
    root = ElementTree.Element("testsuites", {"name": name})
    totals = dict.fromkeys(("tests", "failures", "errors"), 0)
    for suite in suites:
        element = _suite(root, suite)
        for key in totals:
            totals[key] += int(element.get(key, "0"))
    root.attrib.update({key: str(total) for key, total in totals.items()})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, suite: Suite) -> ElementTree.Element:
    outcomes = [OUTCOME.get(case.verdict) for case in suite.cases]
    attributes = {
        "name": printable(suite.name),
        "tests": str(len(suite.cases)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "skipped": str(outcomes.count("skipped")),
        "time": f"{sum(case.seconds for case in suite.cases):.3f}",
        "hostname": printable(suite.hostname or suite.name),
    }
    if suite.started:
        attributes["timestamp"] = printable(suite.started)[:19]
    element = ElementTree.SubElement(root, "testsuite", attributes)
    if suite.properties:
        properties = ElementTree.SubElement(element, "properties")
        for key, value in suite.properties:
            ElementTree.SubElement(properties, "property", {"name": printable(key), "value": printable(value)})
    for case in suite.cases:
        _case(element, case)
    return element


def _case(suite: ElementTree.Element, case: Case) -> None:
    attributes = {"classname": printable(case.classname), "name": printable(case.name), "time": f"{case.seconds:.3f}"}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    outcome = OUTCOME.get(case.verdict)
    if outcome:
        child = ElementTree.SubElement(element, outcome, {"message": printable(case.message)})
        if outcome != "skipped":
            child.set("type", case.verdict.value)
        child.text = "\n".join(map(printable, case.detail.split("\n"))) or None
