"""A root cause and what follows from it, in the formats for programs and on the page."""

import pytest
from lxml import etree, html

from gpucheck.model import Finding, Verdict
from gpucheck.render.formats import render
from gpucheck.render.machine.junit import to_junit
from gpucheck.render.machine.lines import to_nagios
from tests.render.reports import finding, passed, report
from tests.render.views import report_page

FOLLOWS = tuple(
    Finding(check=name, verdict=Verdict.UNKNOWN, subject="host", because_of="driver", why="no NVML", fix="f")
    for name in ("bar1", "numa")
)
ROOT = finding("driver", "host", seen="no driver", wanted=None, unit=None)


def test_junit_has_one_failure_and_skips_what_follows():
    """A host without a driver was 24 errors. The names of the cases stay."""
    suite = etree.fromstring(to_junit(report(*FOLLOWS, ROOT, passed())).encode()).find("testsuite")

    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["4", "1", "0", "2"]
    case = suite.find("testcase[@classname='gpucheck.bar1']")
    assert (case.get("name"), case.find("skipped").get("message")) == ("host", "not run: see the findings of driver")


def test_junit_keeps_an_error_whose_root_cause_was_not_looked_for():
    suite = etree.fromstring(to_junit(report(*FOLLOWS)).encode()).find("testsuite")

    assert (suite.get("errors"), suite.get("skipped")) == ("2", "0")


def test_nagios_names_the_root_cause_and_counts_the_rest():
    line = to_nagios(report(*FOLLOWS, ROOT, simulated=False))

    assert line.startswith("GPUCHECK CRITICAL - driver: no driver (nvlink-down); 2 checks not run because of this | ")


def test_the_page_has_one_block():
    page = html.fromstring(report_page(report(*FOLLOWS, ROOT)))

    (article,) = page.xpath("//article")
    assert "2 checks not run because of this: bar1, numa" in article.text_content()
    assert [term.text for term in article.xpath(".//dt")] == ["why", "fix", "cause"]


GPU = "gpu:0000:05:00.0"
LEAD = finding("pcie-link", GPU, seen=8, wanted=16, unit="lanes", cause="pcie-width-reduced")
PART = finding(
    "p2p-bandwidth",
    "pair:0000:04:00.0-0000:05:00.0",
    seen=5.9,
    wanted=11.8,
    unit="GB/s",
    cause="pcie-width-reduced",
    because_of="pcie-link",
    because_of_subject=GPU,
)


@pytest.mark.parametrize("format_", ["markdown", "nagios", "slurm", "text"])
def test_a_fault_is_one_entry(format_):
    one = render(report(LEAD), format_).count("pcie-width-reduced")

    assert one > 0
    assert render(report(LEAD, PART), format_).count("pcie-width-reduced") == one


def test_junit_and_prometheus_have_one_failure_of_a_fault():
    """The part is not lost: it is skipped with what it saw and the name of the finding that leads."""
    both = report(LEAD, PART)
    suite = etree.fromstring(to_junit(both).encode()).find("testsuite")
    case = suite.find("testcase[@classname='gpucheck.p2p-bandwidth']/skipped")
    statuses = [line for line in render(both, "prometheus").splitlines() if line.startswith("gpucheck_finding_status{")]

    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["2", "1", "1"]
    assert "5.9 GB/s" in case.get("message")
    assert case.get("message").endswith(f"(same fault as pcie-link {GPU})")
    assert len(statuses) == 1
    assert 'check="pcie-link"' in statuses[0]
