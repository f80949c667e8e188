import json
from datetime import datetime, timezone

import click
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.fleet import merge, read_reports
from gpucheck.model import TopologyGpu, Verdict
from gpucheck.render.fleet import render
from tests.fakes import SYSTEM
from tests.fleet.reports import bad, merged, report, rows, topology
from tests.run.test_run import HOST, quick


def write(folder, name, host=HOST):
    system = msgspec.structs.replace(SYSTEM, hostname=name)
    report = quick(msgspec.structs.replace(host, system=system))
    path = folder / f"{name}.json"
    path.write_bytes(msgspec.json.encode(report))
    return path


def test_every_host_is_a_row_and_every_simulated_row_says_so(tmp_path):
    fleet = merge(read_reports([write(tmp_path, "b"), write(tmp_path, "a")]))
    lines = click.unstyle(render(fleet, "text")).splitlines()

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
    assert "unreachable" in render(fleet, "text")


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


def at(minute, **changes):
    return report("a", started=f"2026-11-21T12:{minute:02d}:00+00:00", **changes)


def machine(*uuids, **changes):
    gpus = tuple(TopologyGpu(index=i, name="H100", uuid=uuid) for i, uuid in enumerate(uuids))
    return {"topology": msgspec.structs.replace(topology(), gpus=gpus), **changes}


# A card is replaced one at a time: with no GPU in common these are two machines.
@pytest.mark.parametrize(
    ("first", "second", "verdict", "kind", "words"),
    [
        (at(5), at(1, verdict=Verdict.FAIL, findings=(bad(),)), Verdict.PASS, "duplicate", "is older than"),
        (at(1), at(1), Verdict.PASS, "duplicate", "the same report again"),
        (at(1), at(1, seconds=99.0), Verdict.UNKNOWN, "conflict", "has the same start time"),
        (at(1, **machine("1", "2")), at(2, **machine("3", "4")), Verdict.UNKNOWN, "conflict", "two hosts have this"),
        (at(1, **machine("1", "2")), at(2, **machine("1", "3")), Verdict.PASS, "duplicate", "is older than"),
    ],
    ids=["newest", "twice", "contradiction", "two-machines", "replaced-card"],
)
def test_of_two_reports_of_a_name_one_counts_and_the_other_is_named(first, second, verdict, kind, words):
    fleet = merged(first, second)

    assert fleet.hosts[0].verdict is verdict
    assert {(p.kind, p.subject) for p in fleet.problems} == {(kind, "a")}
    assert words in fleet.problems[0].text


def test_two_hosts_with_one_real_gpu_are_unknown():
    first, second = (report(name, simulated=False, **machine("GPU-1")) for name in ("a", "b"))
    fleet = merged(first, second, report("c", simulated=False, **machine("GPU-2")))

    assert [(p.kind, p.subject) for p in fleet.problems] == [("conflict", "a"), ("conflict", "b")]
    assert [row.verdict for row in fleet.hosts] == [Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.PASS]


def test_a_clock_from_the_future_is_named_and_never_wins():
    now = datetime(2026, 11, 21, 13, tzinfo=timezone.utc)
    future = report("a", started="2026-11-22T12:00:00+00:00")

    alone = merged(future, now=now)
    beside = merged(future, at(1), now=now)

    assert [p.kind for p in alone.problems] == ["clock"]
    assert alone.hosts[0].verdict is Verdict.UNKNOWN
    assert beside.hosts[0].started == at(1).started


@pytest.mark.parametrize("started", ["", "yesterday", "9999-99-99T00:00:00Z", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_is_none_is_named(started):
    fleet = merged(report("a", started=started), report("b"), now=datetime(2026, 11, 21, 13, tzinfo=timezone.utc))

    assert {(p.kind, p.subject) for p in fleet.problems} <= {("clock", "a"), ("stale", "a")}
    assert fleet.problems


def test_a_report_much_older_than_the_others_is_named():
    fleet = merged(report("a", started="2026-10-01T00:00:00+00:00"), report("b"))

    assert [(p.kind, p.subject) for p in fleet.problems] == [("stale", "a")]


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.randoms())
def test_the_order_of_reports_does_not_count(numbers, rng):
    """Whoever reads what first: the merge is the same, byte for byte."""
    found = rows(*(at(n % 3) if n % 2 else report(f"node{n}", 370.0 + n) for n in numbers))
    again = rng.sample(found, len(found))

    assert msgspec.json.encode(merge(again)) == msgspec.json.encode(merge(found))
