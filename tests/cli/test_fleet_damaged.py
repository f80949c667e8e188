"""gpucheck fleet with input that is damaged, hostile or no file: one line, no traceback, nothing selected."""

import json
import os
import subprocess
import sys

import pytest

from tests.fleet.reports import encoded, report

DAMAGED = {
    "cut.json": b'{"schema": "gpucheck.fleet/1"',
    "bits.json": b"\xff" * 30,
    "list.json": b"[]",
    "empty.json": b"",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_earlier_merge_is_one_line(fleet, folder, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(DAMAGED[name])

    status, out, message = fleet("report", folder, "--baseline", path)

    assert (status, out) == (64, "")
    assert message.count("\n") == 1
    assert message.startswith(f"Error: {path}: ")


@pytest.mark.parametrize("name", ["labels.yml", "labels.csv", "before.json"])
def test_a_fifo_is_not_waited_for(fleet, folder, tmp_path, name):
    os.mkfifo(tmp_path / name)

    status, _, message = fleet("report", folder, "--labels" if "labels" in name else "--baseline", tmp_path / name)

    assert status == 64
    assert "is a FIFO" in message


@pytest.mark.parametrize("words", ["!!timestamp x", '!!float ""', '!!int ""', "!!bool x", "*x", "2026-13-13"])
def test_labels_that_yaml_cannot_read_are_one_line(fleet, folder, tmp_path, words):
    (tmp_path / "l.yml").write_text(f"node01: {{rack: {words}}}\n")

    status, out, message = fleet("report", folder, "--labels", tmp_path / "l.yml")

    assert (status, out) == (64, "")
    assert message.count("\n") == 1


def test_a_process_substitution_is_a_stream(folder):
    command = f"{sys.executable} -m gpucheck fleet report <(cat {folder}/node01.json) --format json"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert [row["host"] for row in json.loads(done.stdout)["hosts"]] == ["node01"]


NAMES = ["node3\nnode-evil", "node5,localhost", "--rdzv-backend=evil", "$(touch x)", "all:!node1", "~.*", "n[1-9]",
         "a b",         "\x1b[2J", "all", "localhost", "a;b", "", "-", "n*"]  # fmt: skip


def test_a_name_that_is_no_host_name_is_not_selected(fleet):
    """Written to a list it would be several hosts, a pattern, an option, or the controller."""
    content = b"\n".join(encoded(*(report(name) for name in NAMES), report("node1"), report("node2")))

    status, out, message = fleet("report", "-", "--select", "8", given=content)

    assert (status, out) == (0, "node1,node2\n")
    assert "14 hosts that are fit are left out" in message
    assert "\x1b" not in message
    status, out, message = fleet("report", "-", "--select", "12", given=content)
    assert (status, out) == (2, "")
    assert "left out" in message
