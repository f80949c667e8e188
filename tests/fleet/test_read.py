import gzip
import io

import msgspec
import pytest

from gpucheck import fleet
from gpucheck.model import Verdict
from gpucheck.render.fleet import render
from tests.fleet.reports import report, rows, write


def seen(row):
    return str(row.problems[0].seen)


def stream(content: bytes):
    return list(fleet.read_stream(io.BytesIO(content)))


def indented(each):
    return msgspec.json.format(msgspec.json.encode(each), indent=2)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_packed_report_is_a_row_with_what_to_do(tmp_path, ending):
    (tmp_path / f"a.json{ending}").write_bytes(gzip.compress(msgspec.json.encode(report("a"))))

    (row,) = fleet.read_reports(fleet.report_files(tmp_path))

    assert (row.host, row.verdict) == ("a", Verdict.UNKNOWN)
    assert row.problems[0].code == "fleet.report-packed"


@pytest.mark.parametrize("form", [msgspec.json.encode, indented], ids=["one-line", "indented"])
def test_a_stream_of_reports_is_read(form):
    assert [row.host for row in stream(b"\n".join(form(report(name)) for name in "abc"))] == ["a", "b", "c"]


def test_a_saved_stream_is_read(tmp_path):
    (tmp_path / "all.ndjson").write_bytes(b"\n".join(msgspec.json.encode(report(name)) for name in "ab"))

    assert [row.host for row in fleet.read_reports(fleet.report_files(tmp_path))] == ["a", "b"]


@pytest.mark.parametrize("part", ["system", "measurements", "topology"])
def test_a_report_that_lacks_a_part_is_damaged(part):
    """Null or empty is an answer: of a host without GPUs there is no topology."""
    whole = msgspec.json.decode(msgspec.json.encode(report("a"))) | {"measurements": {}, "topology": None}

    (row,) = stream(msgspec.json.encode({key: value for key, value in whole.items() if key != part}))

    assert [problem.code for problem in stream(msgspec.json.encode(whole))[0].problems] == []
    assert (row.verdict, row.problems[0].check) == (Verdict.UNKNOWN, "report")


def labelled(prefix, each):
    return [prefix + line for line in indented(each).splitlines()]


def test_interleaved_srun_labels_are_told_apart():
    """srun --label writes the lines of all tasks as they come."""
    first, second = labelled(b"0: ", report("a")), labelled(b" 1: ", report("b"))
    lines = [line for pair in zip(first, second, strict=True) for line in pair]

    assert sorted(row.host for row in stream(b"\n".join(lines))) == ["a", "b"]


def test_kubectl_prefixes_are_taken_off():
    lines = [
        *labelled(b"[pod/gpucheck-x2/gpucheck] ", report("a")),
        *labelled(b"[pod/gpucheck-y7/gpucheck] ", report("b")),
    ]

    assert [row.host for row in stream(b"\n".join(lines))] == ["a", "b"]


def test_a_report_that_is_cut_off_is_named_and_the_next_is_read():
    lines = [*labelled(b"0: ", report("a"))[:-3], *labelled(b"0: ", report("b")), *labelled(b"1: ", report("c"))[:-3]]

    first, whole, last = stream(b"\n".join(lines))

    assert whole.host == "b"
    assert "stdin, task 0: the report is cut off" in seen(first)
    assert "stdin, task 1: the report is cut off" in seen(last)


def test_a_stream_cannot_fill_the_memory(monkeypatch):
    """Endless reports that are begun and never ended: the largest is given up, by name."""
    monkeypatch.setattr("gpucheck.fleet.read.MAX_HELD", 5000)
    lines = [line for i in range(50) for line in (b'%d: {"x": "%s"\n' % (i, b"y" * 1000),)]

    reasons = [seen(row) for row in stream(b"".join(lines))]

    assert len(reasons) == 50
    assert sum("too many reports are interleaved" in reason for reason in reasons) == 46


def test_an_empty_stream_says_so():
    (row,) = stream(b"\n\nnothing here\n")

    assert "no JSON document" in seen(row)


def test_a_merged_report_is_told_from_a_host_report(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text(render(fleet.merge(rows(report("a"))), "json"))

    (row,) = fleet.read_file(path)

    assert "merged fleet report" in seen(row)
    assert row.problems[0].code == "fleet.report-merged"


def test_many_files_are_read_on_all_processors_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("gpucheck.fleet.read.PARALLEL", 4)
    monkeypatch.setattr("gpucheck.fleet.read.BATCH", 3)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    write(tmp_path, *(report(f"n{i}") for i in range(8)))

    assert [row.host for row in fleet.read_reports(fleet.report_files(tmp_path))] == [f"n{i}" for i in range(8)]
