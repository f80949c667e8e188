"""gpucheck diagnose: numbers of elsewhere in, one answer out, one clear line for anything else."""

import json
from pathlib import Path

import pytest

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
