"""What a file holds is bounded before it is read, and what is no file is named."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpucheck import fleet
from gpucheck.model import Verdict
from tests.fleet.reports import report, write
from tests.shared import END_S


def seen(row):
    return str(row.problems[0].seen)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "FIFO"),
        (Path.mkdir, "a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.symlink_to("gone.json"), "No such file"),
    ],
)
def test_what_is_no_file_is_a_row(tmp_path, make, reason):
    """A name that ends in .json was meant to be a report; nothing waits for a FIFO's writer."""
    write(tmp_path, report("a"))
    make(tmp_path / "b.json")

    found = fleet.merge(fleet.read_reports(fleet.report_files(tmp_path)))

    assert [(row.host, row.verdict) for row in found.hosts] == [("a", Verdict.PASS), ("b", Verdict.UNKNOWN)]
    assert reason in seen(found.hosts[1])


def limited(path, mib=600):
    """Read one file in a process that may have so much memory; the reason that its row gives."""
    code = "import pathlib, sys; from gpucheck import fleet; (row,) = fleet.read_file(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(row.problems[0].seen)", path],
        capture_output=True, text=True, timeout=END_S, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "begin", [b"", b'{"schema": "gpucheck.report/1", "host": "a", "x": "' + b"y" * (20 << 20)], ids=["sparse", "text"]
)
def test_a_file_of_900_mb_is_refused_within_little_memory(tmp_path, begin):
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(900 << 20)

    assert "larger than 16 MiB, so it is not a host report" in limited(path)


def test_what_is_inside_a_document_that_is_too_large_is_no_report(tmp_path):
    """Lines that look like the begin of documents are of the one that was given up."""
    path = tmp_path / "a.json"
    inner = b'{"schema": "gpucheck.report/1", "host": "b", "x": "%s"},\n' % (b"y" * 1000)
    path.write_bytes(b'{"x": [\n' + inner * (17 * 2**20 // len(inner)) + b"]}")

    (row,) = fleet.read_file(path)

    assert row.host == "a"
    assert "larger than 16 MiB" in seen(row)
