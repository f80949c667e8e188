"""gpucheck diagnose: numbers of elsewhere in, one answer out, one clear line for anything else."""

import json
from pathlib import Path

import pytest

from tests.diagnose.cases import case

ROOT = Path(__file__).parent.parent.parent
PASTES = ROOT / "tests" / "data" / "bandwidth"
TOPO = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"


@pytest.fixture
def diagnose(run):
    """Run it: exit status, and stdout or the message of the error."""

    def diagnose(*arguments, given=None):
        status, out, err = run("diagnose", *arguments, given=given)
        return status, out or err.removeprefix("Error: ").rstrip()

    return diagnose


def written(tmp_path, name):
    path = tmp_path / "machine.yml"
    path.write_text(json.dumps(case(name)["observations"]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "verdict", "status"),
    [("h100x8-nvswitch-healthy", "pass", 0), ("wrx90-2switch-uplink-gen2", "fail", 2)],
)
def test_observations_become_json_with_the_verdict_and_exit_status(diagnose, tmp_path, name, verdict, status):
    code, text = diagnose("--observations", written(tmp_path, name), "--format", "json")
    answer = json.loads(text)

    assert code == status
    assert answer["schema"] == "gpucheck.diagnosis/1"
    assert answer["verdict"] == verdict
    assert set(answer["counts"]) == {"pass", "warn", "fail", "unknown", "skip"}
    assert sum(answer["counts"].values()) == len(answer["findings"])
    assert all(row["why"] and row["fix"] for row in answer["findings"] if row["verdict"] in ("warn", "fail", "unknown"))


def test_observations_add_what_no_tool_prints(diagnose, tmp_path):
    extra = tmp_path / "host.yml"
    extra.write_text("host: {iommu: off, acs_redirect: true}\n", encoding="utf-8")
    _, text = diagnose("--observations", extra, PASTES / "p2p-bandwidth-latency.txt", "--format", "json")

    assert {row["cause"] for row in json.loads(text)["findings"]} == {"acs-redirect"}


def test_stdin_is_read_once_only(diagnose):
    assert diagnose("--observations", "-", given="gpus: {count: 2}\n")[0] == 3
    assert diagnose("-", "-", given=TOPO)[0] == 64


def test_more_gpus_than_a_machine_has_are_not_evaluated(diagnose, tmp_path):
    """Each rule would take time that grows with the cube."""
    count = 129
    rows = ["\t".join(["", *(f"GPU{gpu}" for gpu in range(count))])]
    rows += ["\t".join([f"GPU{a}", *("X" if a == b else "SYS" for b in range(count))]) for a in range(count)]
    (tmp_path / "topo.txt").write_text("\n".join(rows) + "\n")
    code, message = diagnose(tmp_path / "topo.txt")

    assert code == 3
    assert "more than 128 GPUs" in message
