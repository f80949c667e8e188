"""A root cause and what follows from it, in the formats for programs and on the page."""

from lxml import etree, html

from gpucheck.model import Finding, Verdict
from gpucheck.render.report.html import to_html
from gpucheck.render.report.junit import to_junit
from gpucheck.render.report.nagios import to_nagios
from tests.render.reports import finding, passed, report

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
    page = html.fromstring(to_html(report(*FOLLOWS, ROOT)))

    (article,) = page.xpath("//article")
    assert "2 checks not run because of this: bar1, numa" in article.text_content()
    assert [term.text for term in article.xpath(".//dt")] == ["why", "fix", "cause"]
