"""gpucheck fleet with input that is damaged, hostile or no file: one line, no traceback, nothing selected."""

import json
import subprocess
import sys

from tests.fleet.reports import encoded, report


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
