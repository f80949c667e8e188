import gzip
import json
import subprocess
import sys

import pytest

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


def test_shards_give_the_same_as_one_reader(fleet, folder, tmp_path):
    files = sorted(folder.iterdir())
    for i in range(2):
        assert fleet("report", *files[i::2], "--shard", "-o", tmp_path / f"part{i}.json")[0] == 0

    _, whole, _ = fleet("report", folder, "--format", "json")
    _, parts, _ = fleet("report", tmp_path / "part0.json", tmp_path / "part1.json", "--format", "json")

    assert json.loads(parts) == json.loads(whole)


def test_labels_place_the_hosts(fleet, folder, tmp_path):
    (tmp_path / "labels.csv").write_text("host,rack\nslow,r9\nnode01,r1\n")

    _, out, _ = fleet("report", folder, "--labels", tmp_path / "labels.csv", "--format", "json")

    assert {row["host"]: row["attributes"].get("rack") for row in json.loads(out)["hosts"]}["slow"] == ["r9"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("l.csv", "rack\nr1\n"),
        ("l.csv", ""),
        ("l.yml", "- a\n"),
        ("l.yml", "a: {b: [1]}\n"),
        ("l.yml", "a: {b"),
        ("l.csv", "\xff"),
    ],
)
def test_labels_that_are_none_are_a_clear_message(fleet, folder, tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("latin-1"))

    status, _, message = fleet("report", folder, "--labels", tmp_path / name)

    assert status == 64
    assert name in message


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


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("lines", "node01\nnode02\n"),
        ("slurm", "node[01-02]\n"),
        ("ansible", "node01,node02\n"),
        ("torchrun", "--nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=node01:29500\n"),
    ],
)
def test_fit_hosts_are_printed_as_the_launcher_wants(fleet, folder, form, words):
    assert fleet("report", folder, "--select", "8", "--gpu-model", "h100", "--select-format", form)[:2] == (0, words)


def test_a_host_that_stands_out_is_not_selected(fleet, folder):
    status, _, message = fleet("report", folder, "--select", "36")

    assert status == 2
    assert "the largest homogeneous group has 32 on 8 hosts" in message


def test_every_format_is_written_in_one_run(fleet, folder, tmp_path):
    endings = ("json", "csv", "parquet", "prom", "xml", "html", "txt")
    more = [word for ending in endings for word in ("--write", tmp_path / "out" / f"fleet.{ending}")]

    fleet("report", folder, *more)

    assert sorted(p.suffix[1:] for p in (tmp_path / "out").iterdir()) == sorted(endings)
    assert (tmp_path / "out" / "fleet.parquet").read_bytes()[:4] == b"PAR1"
    assert "\x1b" not in (tmp_path / "out" / "fleet.txt").read_text()


def test_an_ending_that_names_no_format_is_refused_before_anything_is_read(fleet, tmp_path):
    status, _, message = fleet("report", tmp_path, "--write", "fleet.doc")

    assert status == 64
    assert ".parquet" in message


def test_parquet_does_not_go_to_a_terminal(fleet, folder):
    assert "-o fleet.parquet" in fleet("report", folder, "--format", "parquet")[2]


def test_history_follows_a_host_and_a_metric(fleet, folder, tmp_path):
    keep = tmp_path / "kept"
    fleet("report", folder, "--history-dir", keep)
    (first,) = keep.iterdir()
    assert json.loads(gzip.decompress(first.read_bytes()))["schema"] == "gpucheck.fleet/1"
    first.rename(keep / "2026-01-01T00-00-00Z.json.gz")
    write(folder, report("slow", 380.0))
    fleet("report", folder, "--history-dir", keep)

    _, host, _ = fleet("history", "slow", "--history-dir", keep)
    _, metric, _ = fleet("history", "p2p.unidirectional_gb_s", "--history-dir", keep)
    _, svg, _ = fleet("history", "p2p", "--history-dir", keep, "--format", "svg")

    assert "WP" in host
    assert "▁█" in host
    assert "+11.8 % since the first" in host
    assert "outliers: 1 on 2026-01-01T00-00-00Z" in metric
    assert svg.startswith("<svg")
    assert "SIMULATED" in host.splitlines()[0]
    assert "SIMULATED" in svg


def test_history_of_nobody_says_what_there_is(fleet, folder, tmp_path):
    fleet("report", folder, "--history-dir", tmp_path / "kept")

    status, _, message = fleet("history", "nobody", "--history-dir", tmp_path / "kept")

    assert status == 64
    assert "p2p.unidirectional_gb_s[NV18]" in message
    assert fleet("history", "a", "--history-dir", tmp_path / "nowhere")[0] == 64
    assert fleet("history", "a", "--history-dir", folder)[0] == 3


def test_a_simulated_fleet_is_written_from_real_runs_and_merged(fleet, tmp_path):
    out = tmp_path / "fleet"
    status, _, message = fleet(
        "simulate", "--hosts", 12, "--profile", "p100-pcie-x2", "--fault", "gpu-missing:gpu=1:2", "-o", out
    )
    assert (status, "SIMULATED fleet" in message) == (0, True)

    _, merged, _ = fleet("report", out, "--format", "json")

    truth = [line.split(",") for line in (out / "ground-truth.csv").read_text().splitlines()[1:]]
    hosts = json.loads(merged)["hosts"]
    assert {h["host"] for h in hosts if h["verdict"] != "pass"} == {
        name for name, _, *fault in truth if fault != ['""']
    }
    assert all(h["simulated"] for h in hosts)
    assert fleet("simulate", "-o", out)[0] == 64


def test_a_fault_that_the_machine_cannot_have_is_a_clear_message(fleet, tmp_path):
    status, _, message = fleet("simulate", "--hosts", 4, "--fault", "no-such-fault:1", "-o", tmp_path / "x")

    assert status == 64
    assert "no-such-fault" in message
    assert not (tmp_path / "x").exists()


def test_the_help_of_the_command_costs_nothing():
    """No reader, no statistics, no msgspec until a command runs."""
    code = (
        "import sys; from gpucheck.cli import main\n"
        "try: main(['fleet', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('gpucheck.fleet') or m in ('jinja2', 'pyarrow', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
