import json
from dataclasses import replace

import click
import msgspec
import pytest

from gpucheck.fleet import merge, read_reports
from gpucheck.model import Verdict
from gpucheck.render import fleet as render
from tests.fakes import SYSTEM
from tests.test_run import HOST, quick


def write(folder, name, host=HOST):
    system = msgspec.structs.replace(SYSTEM, hostname=name)
    report = quick(replace(host, system_=system))
    path = folder / f"{name}.json"
    path.write_bytes(msgspec.json.encode(report))
    return path


def test_every_host_is_a_row_and_every_simulated_row_says_so(tmp_path):
    fleet = merge(read_reports([write(tmp_path, "b"), write(tmp_path, "a")]))
    lines = click.unstyle(render.to_text(fleet)).splitlines()

    assert [row.host for row in fleet.hosts] == ["a", "b"]
    assert fleet.verdict is Verdict.PASS
    assert all("SIMULATED p100-pcie-x2" in line for line in lines[1:3])
    assert lines[-1] == "PASS  2 hosts: 2 pass  SIMULATED"


@pytest.mark.parametrize(("placement", "words"), [("cpu", "pass (2 CPU ranks)"), ("gpus", "pass (2 GPU ranks)")])
def test_the_training_column_says_what_was_trained_on(tmp_path, placement, words):
    """A pass on CPU ranks says nothing about the GPUs."""
    path = write(tmp_path, "a")
    report = json.loads(path.read_text())
    report["findings"].append({"check": "smoke-ddp", "verdict": "pass", "subject": "host"})
    report["measurements"]["smoke-ddp"] = {"devices": ["x", "y"], "placement": placement}
    path.write_text(json.dumps(report))

    (row,) = read_reports([path])

    assert row.training == words


def test_a_host_without_a_report_is_a_row_not_a_gap(tmp_path):
    """The host that is down is the one the operator must see."""
    fleet = merge(read_reports([write(tmp_path, "a")]), expected=["a", "dead"])

    assert [(row.host, row.verdict) for row in fleet.hosts] == [("a", Verdict.PASS), ("dead", Verdict.UNKNOWN)]
    assert fleet.verdict is Verdict.UNKNOWN
    assert "unreachable" in render.to_text(fleet)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"schema": "gpucheck.report/1"}', b"null"],
    ids=["empty", "cut", "binary", "list", "fields-missing", "null"],
)
def test_a_file_that_is_no_report_is_named(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)

    (row,) = read_reports([path])

    assert row.verdict is Verdict.UNKNOWN
    assert "x.json" in str(row.problems[0].seen)


def test_a_report_of_another_schema_is_named(tmp_path):
    path = write(tmp_path, "a")
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": "gpucheck.report/2"}))

    (row,) = read_reports([path])

    assert "gpucheck.report/2" in str(row.problems[0].seen)


def test_a_host_that_stands_twice_is_marked(tmp_path):
    """Two reports claim it, so one of them is stale."""
    first = write(tmp_path, "a")
    second = tmp_path / "a-old.json"
    second.write_bytes(first.read_bytes())

    fleet = merge(read_reports([first, second]))

    assert [row.verdict for row in fleet.hosts] == [Verdict.UNKNOWN, Verdict.UNKNOWN]
    assert "stale" in fleet.hosts[0].problems[0].why


def test_a_host_name_cannot_drive_the_terminal(tmp_path):
    """Reports come from many hosts; an escape sequence in a name is shown, not obeyed."""
    fleet = merge(read_reports([write(tmp_path, "a")]))
    evil = msgspec.structs.replace(fleet.hosts[0], host="a\x1b]0;owned\x07")

    assert "\x1b]0" not in render.to_text(msgspec.structs.replace(fleet, hosts=(evil,)))
