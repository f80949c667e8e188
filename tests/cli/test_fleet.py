import json
import subprocess
import sys

from gpucheck.model import Verdict
from tests.fleet.reports import bad, encoded, report, write


def test_the_exit_status_is_the_verdict_of_the_fleet(fleet, folder):
    assert fleet("report", folder)[0] == 1
    write(folder, report("sick", verdict=Verdict.FAIL, findings=(bad(),)))
    assert fleet("report", folder)[0] == 2
    assert fleet("report", folder / "node01.json", "--expect-host", "node01,b")[0] == 3


def test_a_stream_on_stdin_is_merged(fleet):
    status, out, _ = fleet("report", "-", "--format", "json", given=b"\n".join(encoded(report("a"), report("b"))))

    assert status == 0
    assert [row["host"] for row in json.loads(out)["hosts"]] == ["a", "b"]


def test_nothing_to_merge_is_unknown_with_the_next_step(fleet, tmp_path):
    status, _, message = fleet("report", tmp_path)

    assert status == fleet("report", "-", given=b"")[0] == 3
    assert "contains no *.json report. Run gpucheck verify --format json" in message


def test_what_changed_since_the_previous_merge_is_told(fleet, folder, tmp_path):
    fleet("report", folder, "--format", "json", "-o", tmp_path / "before.json")
    (folder / "node01.json").unlink()
    write(folder, report("slow", 380.0), report("newer"), report("node02", verdict=Verdict.FAIL, findings=(bad(),)))

    _, out, _ = fleet("report", folder, "--baseline", tmp_path / "before.json", "--format", "json")

    kinds = {change["host"]: change["kind"] for change in json.loads(out)["changes"]}
    assert kinds == {"node01": "gone", "newer": "new", "slow": "fixed", "node02": "broken"}


def test_a_previous_merge_that_is_none_is_a_clear_message(fleet, folder):
    status, _, message = fleet("report", folder, "--baseline", folder / "slow.json")

    assert status == 64
    assert "not a merged fleet report" in message


def test_fit_hosts_are_printed_as_launchers_read_them(fleet, folder):
    assert fleet("report", folder, "--select", "8", "--gpu-model", "h100")[:2] == (0, "node01,node02\n")


def test_a_host_that_stands_out_is_not_selected(fleet, folder):
    status, _, message = fleet("report", folder, "--select", "36")

    assert status == 2
    assert "the largest homogeneous group has 32 on 8 hosts" in message


def test_a_host_with_an_old_report_or_one_of_a_few_checks_is_not_selected(fleet):
    old = report("old", started="2026-10-01T00:00:00+00:00")
    few = report("few", not_proven=("everything except acs, excluded by --only",))
    content = b"\n".join(encoded(report("node1"), old, few, report("node2")))

    assert fleet("report", "-", "--select", "8", given=content)[:2] == (0, "node1,node2\n")
    status, out, message = fleet("report", "-", "--select", "12", given=content)
    assert (status, out) == (2, "")
    assert "2 have an old or partial report" in message


def test_the_help_of_the_command_costs_nothing():
    """No reader, no statistics, no msgspec until a command runs."""
    code = (
        "import sys; from gpucheck.cli import main\n"
        "try: main(['fleet', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('gpucheck.fleet') or m in ('jinja2', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


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
