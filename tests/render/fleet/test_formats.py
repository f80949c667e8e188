import csv
import io
import json
import re
from xml.etree import ElementTree

import click
import msgspec
import pytest

from gpucheck.model import Verdict
from gpucheck.render.fleet import json_pieces, render
from gpucheck.render.write.fleet_page import to_html
from gpucheck.render.write.html import json_data
from tests.fleet.reports import bad, merged, report, steady

EVIL = "</script><img src=x onerror=alert(1)>\x1b[2J\u202egpj\n\"'`${{7*7}}"


@pytest.fixture(scope="module")
def fleet():
    sick = report("sick", verdict=Verdict.FAIL, findings=(bad(subject="gpu:0000:01:00.0"),))
    return merged(*steady(), report("slow", 340.0), sick)


def test_the_text_tells_what_stands_out_once(fleet):
    text = click.unstyle(render(fleet, "text"))

    assert "Outliers" in text
    assert len(re.findall(r"^slow +p2p", text, re.M)) == 1
    assert text.splitlines()[-1] == "FAIL  14 hosts: 1 fail, 1 warn, 12 pass, 1 outlier  SIMULATED"


def test_of_a_large_fleet_passing_hosts_are_counted():
    big = merged(*steady(60), report("slow", 340.0))

    short, full = (click.unstyle(render(big, "text", verbose=v)) for v in (False, True))

    assert "60 more hosts pass" in short
    assert "node33" not in short
    assert "node33" in full


def test_a_large_fleet_begins_with_its_worst_hosts():
    failed = report("z-failed", verdict=Verdict.FAIL, findings=(bad(),))
    big = merged(*steady(60), report("a-slow", 340.0), failed)

    lines = click.unstyle(render(big, "text")).splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("verdict"))
    first, second = lines[begin + 1 : begin + 3]

    assert first.startswith("FAIL     z-failed")
    assert second.startswith("WARN     a-slow")
    assert "  outlier, " in second


def test_alike_problems_of_a_large_fleet_are_said_once():
    big = merged(*(report(f"n{i:02d}", verdict=Verdict.FAIL, findings=(bad(),)) for i in range(50)))

    text = click.unstyle(render(big, "text"))

    assert text.count("a link is down") == 1
    assert "and 42 more" in text


def test_csv_has_a_line_a_host_and_a_column_a_metric(fleet):
    lines = list(csv.DictReader(io.StringIO(render(fleet, "csv"))))

    assert len(lines) == 14
    slow = next(line for line in lines if line["host"] == "slow")
    assert (slow["stands_out"], float(slow["p2p matrices p2p uni [NV18] (GB/s)"])) == ("true", 340.0)


def test_csv_cells_are_no_formulas():
    (line,) = csv.DictReader(io.StringIO(render(merged(report("=1+1")), "csv")))

    assert line["host"] == "'=1+1"


def test_prometheus_is_in_base_units(fleet):
    samples = render(fleet, "prometheus").splitlines()

    assert 'gpucheck_host_status{host="sick",simulated="true"} 2' in samples
    assert 'gpucheck_host_p2p_matrices_p2p_uni_bytes_per_second{host="slow",path="NV18"} 340000000000' in samples


def test_junit_counts_what_is_wrong(fleet):
    root = ElementTree.fromstring(render(fleet, "junit"))  # noqa: S314 - our own

    assert (root.get("failures"), root.get("errors")) == ("2", "0")
    (sick,) = root.findall("testsuite[@name='sick']")
    assert [failure.get("message") for failure in sick.findall("testcase/failure")] == [
        "GPU 1 (0000:01:00.0): 17 links"
    ]
    assert set(sick.attrib) <= {"name", "tests", "failures", "errors", "skipped", "time", "hostname", "timestamp"}


@pytest.mark.parametrize("hosts", [0, 1, 3])
def test_json_in_pieces_is_the_whole_contract(hosts):
    """Also where a host is called what the pieces are put together by."""
    fleet = merged(
        *(report(f'{EVIL}{n}\n  "hosts": []', verdict=Verdict.FAIL, findings=(bad(),)) for n in range(hosts))
    )
    pieces = list(json_pieces(fleet))

    assert msgspec.json.decode(b"".join(pieces), type=type(fleet)) == fleet
    assert sum(line.startswith(b'    {"host":') for line in b"".join(pieces).splitlines()) == hosts
    assert len(pieces) == hosts + 3


def test_the_data_of_a_page_survives_its_escaping():
    text = json_data({"a": "<&>\u2028 x\\u0041 \\"})

    assert json.loads(text)["a"] == "<&>\ufffd x\\u0041 \\"
    assert "<" not in text


def test_the_page_grows_by_little_a_host():
    small, large = (len(to_html(merged(*steady(n)))) for n in (20, 120))

    assert (large - small) / 100 < 600
