"""A host is what its file or the inventory calls it; reports never hide one another."""

import io
import json

import msgspec
import pytest

from gpucheck import fleet
from gpucheck.model import Verdict
from gpucheck.render.fleet import render
from tests.fleet.reports import bad, report

SICK = {"verdict": Verdict.FAIL, "findings": (bad(cause="driver-not-loaded"),), "topology": None}
LATER = "2026-11-21T13:00:00+00:00"


def put(path, each):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(each))
    return path


def read(*paths, **options):
    return fleet.merge(fleet.read_reports(paths), **options)


def hosts(merged):
    return {row.host: row.verdict for row in merged.hosts}


def test_two_machines_with_one_host_name_are_two_rows_under_their_files_names(tmp_path):
    """Golden images: the newer, healthy one must not hide the other, which has no driver and so no GPU."""
    sick, well = put(tmp_path / "node01.json", report("vm", **SICK)), put(tmp_path / "node02.json", report("vm"))

    merged = read(sick, well)

    assert hosts(merged) == {"node01": Verdict.FAIL, "node02": Verdict.PASS}
    assert merged.verdict is Verdict.FAIL
    assert [(p.kind, p.subject) for p in merged.problems] == [("name", "node01"), ("name", "node02")]
    assert "is of vm" in render(merged, "text")


def test_a_report_that_bears_another_hosts_name_does_not_replace_it(tmp_path):
    sick = put(tmp_path / "good.json", report("good", **SICK))
    evil = put(tmp_path / "evil.json", report("good", started=LATER))

    assert hosts(read(sick, evil)) == {"evil": Verdict.PASS, "good": Verdict.FAIL}


def test_a_broken_report_that_bears_another_hosts_name_is_its_own_files_row(tmp_path):
    good = put(tmp_path / "good.json", report("good"))
    evil = tmp_path / "evil.json"
    evil.write_text(json.dumps({"schema": "gpucheck.report/1", "host": "good"}))

    assert hosts(read(good, evil)) == {"evil": Verdict.UNKNOWN, "good": Verdict.PASS}


@pytest.mark.parametrize(("name", "schema"), [("provision", "gpucheck.provision/1"), ("plan", "gpucheck.dry-run/1")])
def test_a_file_of_provisioning_that_is_a_hosts_is_a_row(tmp_path, name, schema):
    """A host must not leave the fleet by the schema of what provisioning writes beside the reports."""
    beside, evil = tmp_path / f"{name}.json", tmp_path / "evil.json"
    for path in (beside, evil):
        path.write_text(json.dumps({"schema": schema}))

    assert hosts(read(beside, evil)) == {"evil": Verdict.UNKNOWN}


def test_one_hosts_reports_over_time_are_one_row(tmp_path):
    """The file's name decides: an older failure that was repaired is named, and does not count."""
    old, new = tmp_path / "monday/a.json", tmp_path / "tuesday/a.json"
    put(old, report("a", **SICK))
    put(new, report("a", started=LATER))

    merged = read(old, new)

    assert hosts(merged) == {"a": Verdict.PASS}
    assert [p.kind for p in merged.problems] == ["duplicate"]
    assert "FAIL) is older" in merged.problems[0].text


def test_files_of_one_name_with_reports_of_another_do_not_hide_each_other(tmp_path):
    """Nothing states which hosts they are, so the worst counts, though it is the oldest and has no GPU."""
    folders = (("n1", SICK), ("n2", {"started": LATER}))
    paths = [put(tmp_path / host / "out.json", report("vm", **more)) for host, more in folders]

    merged = read(*paths)

    assert hosts(merged) == {"out": Verdict.FAIL}
    assert [(p.kind, p.subject) for p in merged.problems] == [("conflict", "out"), ("name", "out")]
    assert "n1/out.json" in merged.problems[0].text


@pytest.mark.parametrize("host", ["node07", "node07.cluster.example.com", "NODE07"])
def test_a_short_name_and_its_full_one_are_one_host(tmp_path, host):
    merged = read(put(tmp_path / "node07.json", report(host)), expected=["node07"])

    assert hosts(merged) == {"node07": Verdict.PASS}
    assert merged.problems == ()


def stream(*lines):
    return fleet.merge(fleet.read_stream(io.BytesIO(b"\n".join(lines))))


@pytest.mark.parametrize("labels", [(b"0: ", b"1: "), (b"[pod/g-a/g] ", b"[pod/g-b/g] "), (b"", b"")])
def test_reports_of_one_name_in_a_stream_do_not_hide_each_other(labels):
    reports = (report("vm", **SICK), report("vm", started=LATER))
    merged = stream(*(label + msgspec.json.encode(each) for label, each in zip(labels, reports, strict=True)))

    assert hosts(merged) == {"vm": Verdict.FAIL}
    assert [p.kind for p in merged.problems] == ["conflict"]


def test_a_worse_report_whose_time_cannot_be_believed_counts():
    from datetime import datetime, timezone

    from tests.fleet.reports import merged

    now = datetime(2026, 11, 21, 13, tzinfo=timezone.utc)
    future = report("a", started="2026-12-24T00:00:00+00:00", **SICK)

    assert merged(future, report("a"), now=now).hosts[0].verdict is Verdict.FAIL


def test_an_unreadable_report_beside_a_good_one_is_told(tmp_path):
    old, new = tmp_path / "old/a.json", tmp_path / "new/a.json"
    put(old, report("a"))
    new.parent.mkdir()
    new.write_text("{")

    text = render(read(old, new), "text")

    assert "unreadable a.json: not a host report: it is cut off" in text


def test_the_reason_of_a_missing_report_is_the_inventorys(tmp_path):
    """What the playbook writes in place of a report that did not come."""
    path = tmp_path / "n1.json"
    path.write_bytes(b'{"host": "n9", "unreachable": true, "msg": "no route to host"}')

    (row,) = fleet.read_file(path)

    assert (row.host, row.verdict) == ("n1", Verdict.UNKNOWN)
    assert "no route to host" in str(row.problems[0].seen)
    assert row.problems[0].code == "fleet.host-unreachable"
