"""JUnit that the strict readers take: Jenkins' two plugins and pytest's own schema."""

from pathlib import Path

import msgspec
import pytest
from lxml import etree

from gpucheck.model import Verdict
from gpucheck.render.machine.junit import fleet_to_junit, to_junit
from tests.fleet.reports import bad, merged, steady
from tests.fleet.reports import report as fleet_host
from tests.render.reports import REPORTS, finding, healthy, passed, report

SCHEMAS = {
    path.stem: etree.XMLSchema(etree.parse(path)) for path in (Path(__file__).parents[1] / "schemas").glob("*.xsd")
}
GOOD = to_junit(REPORTS["sick"])


def parsed(text):
    return etree.fromstring(text.encode())


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", REPORTS)
def test_the_strict_schemas_take_it(schema, name):
    SCHEMAS[schema].assertValid(parsed(to_junit(REPORTS[name])))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_strict_schemas_take_a_fleet_too(schema):
    sick_host = fleet_host("sick", verdict=Verdict.FAIL, findings=(bad(),))

    SCHEMAS[schema].assertValid(parsed(fleet_to_junit(merged(*steady(), sick_host))))


@pytest.mark.parametrize(
    ("schema", "old", "new"),
    [
        ("xunit", '<testsuite name="node07" tests="14"', '<testsuite name="node07"'),
        ("xunit", "<failure ", '<failure line="3" '),
        ("xunit", 'skipped="1"', 'skipped="1" disabled="0"'),
        ("jenkins", ' type="fail"', ""),
        ("jenkins", 'timestamp="2026-11-21T16:00:00"', 'timestamp="2026-11-21T16:00:00+00:00"'),
        ("jenkins", "<properties>", "<system-out>x</system-out><properties>"),
    ],
)
def test_the_schemas_refuse_what_strict_readers_refuse(schema, old, new):
    """The yardstick can fail."""
    assert old in GOOD
    assert not SCHEMAS[schema].validate(parsed(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(("fail_on", "counts"), [("unknown", (2, 1)), ("fail", (2, 0))])
def test_what_fail_on_accepts_is_skipped_with_its_message(fail_on, counts):
    (suite,) = parsed(to_junit(REPORTS["sick"], fail_on))
    messages = [one.get("message") for one in suite.findall("testcase/skipped")]

    assert tuple(int(suite.get(key)) for key in ("failures", "errors")) == counts
    assert len(messages) == int(suite.get("skipped")) == 5 - sum(counts)
    assert all(messages)
    SCHEMAS["jenkins"].assertValid(parsed(to_junit(REPORTS["sick"], fail_on)))


def test_verdicts_are_failures_errors_and_skips_and_the_sums_are_right():
    (suite,) = parsed(GOOD)

    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["14", "3", "1", "1"]
    assert len(suite.findall("testcase/failure")) == 3
    (error,) = suite.findall("testcase/error")
    assert error.getparent().get("classname") == "gpucheck.fabric"
    assert suite.get("hostname") == "node07"


def test_a_failure_says_what_was_seen_why_and_what_to_do():
    failure = parsed(GOOD).find("testsuite/testcase[@classname='gpucheck.nvlink']/failure")

    assert failure.get("message") == "GPU 0000:61:00.0: 17 links, expected 18"
    assert failure.text.splitlines() == [
        "why: a link is down",
        "fix: dmesg | grep -e Xid; reseat the board, then: gpucheck verify --only nvlink",
        "cause: nvlink-down (certain)",
        "evidence: nvmlDeviceGetNvLinkState: 17 of 18 ports up",
    ]


def test_facts_are_properties():
    found = {p.get("name"): p.get("value") for p in parsed(GOOD).iter("property")}

    assert found["SIMULATED"] == "hgx-h100-x8, pcie-width:gpu=1,width=8"
    assert found["driver"] == "580.95.05"


def test_the_time_of_a_step_is_told_once():
    """Its findings share it: the suite takes as long as the run did."""
    times = parsed(to_junit(report(*(finding(subject=f"gpu:{n}") for n in range(5)))))

    assert float(times[0].get("time")) == pytest.approx(0.25)


def test_two_findings_about_one_subject_stay_two_cases():
    cases = parsed(to_junit(report(finding("xid"), finding("xid"), passed()))).findall("testsuite/testcase")

    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 3


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_was_not_proven_is_skipped_and_no_pass(schema):
    made = msgspec.structs.replace(healthy(), not_proven=("training, torch is not installed", "p2p, \x1b[2J one GPU"))

    tree = parsed(to_junit(made))

    SCHEMAS[schema].assertValid(tree)
    cases = tree.xpath("//testcase[@classname='gpucheck.not-proven']")
    assert [case.get("name") for case in cases] == ["training, torch is not installed", r"p2p, \x1b[2J one GPU"]
    assert [case.find("skipped").get("message") for case in cases] == ["not proven by this run"] * 2
