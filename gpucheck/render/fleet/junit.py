"""A merged fleet report as JUnit: a suite a host, a case a problem."""

from gpucheck.model import Finding, FleetReport, FleetRow, Verdict
from gpucheck.render import junit
from gpucheck.render.junit import Case, Suite


def to_junit(fleet: FleetReport) -> str:
    name = "gpucheck fleet (SIMULATED)" if fleet.simulated else "gpucheck fleet"
    return junit.write(name, map(_suite, fleet.hosts))


def _suite(row: FleetRow) -> Suite:
    cases = [_case(row.host, finding) for finding in row.problems]
    if not cases:
        cases = [Case("verdict", row.host, row.verdict, "nothing is wrong" if row.verdict is Verdict.PASS else "")]
    facts = {"gpus": row.gpus, "driver": row.driver, "system": row.system}
    facts["SIMULATED"] = row.simulation if row.simulated else None
    properties = tuple((key, text) for key, text in facts.items() if text)
    return Suite(row.host, tuple(cases), row.host, row.started, properties)


def _case(host: str, finding: Finding) -> Case:
    name = finding.check if finding.subject == "host" else f"{finding.check} {finding.subject}"
    return junit.case(finding, name=name, classname=host, seconds=finding.seconds or 0.0)
