"""CTRF JSON as its schema has it: a test a finding, and no unknown that counts as passed."""

import json
from pathlib import Path

import jsonschema
import pytest

from gpucheck.model import Verdict
from gpucheck.render.report.ctrf import STATUSES, to_ctrf
from tests.render.reports import REPORTS, finding, passed, report, skipped

SCHEMA = json.loads((Path(__file__).parents[1] / "schemas" / "ctrf.json").read_text(encoding="utf-8"))


def results(*findings, **fields):
    return json.loads(to_ctrf(report(*findings, **fields)))["results"]


@pytest.mark.parametrize("name", REPORTS)
def test_the_schema_takes_it(name):
    jsonschema.validate(json.loads(to_ctrf(REPORTS[name])), SCHEMA)


@pytest.mark.parametrize("name", REPORTS)
def test_the_summary_is_the_sum_of_the_tests(name):
    found = json.loads(to_ctrf(REPORTS[name]))["results"]
    counts = [test["status"] for test in found["tests"]]

    assert found["summary"]["tests"] == len(counts)
    assert {status: counts.count(status) for status in STATUSES} == {s: found["summary"][s] for s in STATUSES}
    assert found["summary"]["stop"] >= found["summary"]["start"] > 0


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.PASS, "passed"),
        (Verdict.WARN, "failed"),
        (Verdict.FAIL, "failed"),
        (Verdict.UNKNOWN, "other"),
        (Verdict.SKIP, "skipped"),
    ],
)
def test_what_could_not_be_checked_is_not_passed(verdict, status):
    (test,) = results(finding(verdict=verdict))["tests"]

    assert (test["status"], test["rawStatus"]) == (status, verdict.value)


def test_a_failure_has_where_what_why_and_what_to_do():
    (test,) = results(finding(gpu_index=0, action="reset-gpu", owner="node"))["tests"]

    assert test["name"] == "nvlink gpu:0000:01:00.0"
    assert test["message"] == "GPU 0 (0000:01:00.0): 17 links, expected 18"
    assert "why: a link is down" in test["trace"].splitlines()
    assert test["extra"] == {"cause": "nvlink-down", "action": "reset-gpu", "owner": "node", "gpu_index": 0}


def test_a_simulated_machine_and_what_was_not_proven_are_told():
    found = results(passed(), skipped(), simulated=True, not_proven=("training: torch is not installed",))

    assert "SIMULATED" in found["environment"]["extra"]
    assert found["tests"][-1]["name"] == "training: torch is not installed"
    assert found["tests"][-1]["status"] == "skipped"
    assert "SIMULATED" not in results(passed(), simulated=False, simulation=None)["environment"]["extra"]


def test_a_date_that_cannot_be_read_is_zero():
    assert results(passed(), started="yesterday")["summary"]["start"] == 0
