"""An archive about a node that a search named: complete, redacted, and with the serial numbers of its GPUs."""

import csv
import gzip
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from tests.isolate.test_command import isolate, run

HAS = {"recording.json.gz", "report.json", "kernel.log", "gpus.csv", "tests.md"}


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = ((info.name.removeprefix("evidence/"), archive.extractfile(info)) for info in archive)
        return {name: file.read() for name, file in files if file is not None}


@pytest.fixture
def searched(stand_ins, tmp_path):
    stand_ins(n3="slow")
    path = tmp_path / "search.json"
    path.write_text(json.dumps(isolate("--expected", "390")[1]))
    return path


def test_the_archive_of_a_named_node(searched, tmp_path):
    done = run("fleet", "evidence", str(searched), "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("*.tar.gz")] == ["n3.tar.gz"]
    found = members(tmp_path / "n3.tar.gz")
    assert found.keys() == HAS
    plain = gzip.decompress(found["recording.json.gz"]).decode()
    assert json.loads(plain)["redacted"]
    assert json.loads(found["report.json"])["simulated"]
    serials = [row["serial"] for row in csv.DictReader(io.StringIO(found["gpus.csv"].decode()))]
    assert len(set(serials)) == 2
    assert not [serial for serial in serials if serial in plain or serial in found["report.json"].decode()]
    tests = found["tests.md"].decode()
    assert tests.count("| done |") == 3  # with two nodes that are good
    assert not re.search(r"\bn[0-7]\b", tests)
    assert "this-node" in tests
    assert "node-2" in tests


def test_a_node_that_does_not_record_is_named(searched, stand_ins, tmp_path):
    stand_ins(n3="silent")
    done = run("fleet", "evidence", str(searched), "-o", str(tmp_path))
    assert done.returncode == 3
    assert "n3: no recording: " in done.stderr
    assert not list(tmp_path.glob("*.tar.gz"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--nodes", "n9"), "n9: not in this search"), (("--nodes", "a;b"), "not the name of one host")],
)
def test_other_nodes_are_rejected(searched, arguments, message):
    done = run("fleet", "evidence", str(searched), *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (64, False)
    assert message in done.stderr


def test_what_is_no_search_is_rejected(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    done = run("fleet", "evidence", str(tmp_path / "x.json"))
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
