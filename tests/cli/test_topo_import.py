"""gpucheck topo on pastes and files: what is read, what is shown, exit status and where the output goes."""

import json
import subprocess
import sys

import pytest

from tests.imports import nccl
from tests.imports.corpus import by_id

PAIR = by_id("topo-3090x2-nv4-am4")
MESH = by_id("topo-v100sxm2x8-1nic")


@pytest.fixture
def paste(tmp_path):
    def write(text):
        file = tmp_path / "topo.txt"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    return write


def test_a_paste_is_shown_as_json(topo, paste):
    status, out, err = topo("--import", paste(PAIR), "--format", "json")
    answer = json.loads(out)

    assert (status, err) == (0, "")
    assert answer["matrix"] == [["X", "NV4"], ["NV4", "X"]]
    assert (answer["source"], answer["simulated"]) == ("nvidia-smi-topo", False)


def test_standard_input_is_read(topo):
    assert "NV4" in topo("--import", "-", given=PAIR)[1]


@pytest.mark.parametrize(
    ("dropped", "status"),
    [((), 0), (("GPU3",), 1), (("GPU3", "GPU5"), 3), (("NIC0",), 0)],
)
def test_the_exit_status_says_how_much_was_lost(topo, paste, dropped, status):
    """Recovered by symmetry is a WARN, not known is UNKNOWN; a missing NIC row loses nothing about GPUs."""
    text = "\n".join(line for line in MESH.splitlines() if not (dropped and line.startswith(dropped)))

    assert topo("--import", paste(text))[0] == status


def test_fail_on_unknown_accepts_a_warning_and_not_what_is_unknown(topo, paste):
    text = "\n".join(line for line in MESH.splitlines() if not line.startswith(("GPU3", "GPU5")))
    file = paste(text.replace("GPU0\t X \tNV1", "GPU0\t X \tNV2"))

    assert topo("--import", file)[0] == 1
    assert topo("--import", file, "--fail-on", "unknown")[0] == 3


def test_best_shows_the_gpus_of_a_job_and_how_to_start_it(topo, paste):
    file = paste(nccl.mesh())
    status, out, _ = topo("--import", file, "--best", "4")
    best = json.loads(topo("--import", file, "--best", "4", "--format", "json")[1])["advice"]["best"]

    assert status == 0
    assert "  4 GPUs: 0, 1, 2, 3: slowest pair NV1" in out
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in out
    assert "numactl --cpunodebind=0 --membind=0" in out
    assert [choice["gpus"] for choice in best] == [[0, 1, 2, 3]]


def test_without_being_asked_json_has_advice_and_text_only_what_is_uneven(topo, paste):
    file = paste(nccl.mesh())
    advice = json.loads(topo("--import", file, "--format", "json")[1])["advice"]
    text = topo("--import", file)[1]

    assert [choice["size"] for choice in advice["best"]] == [2, 4]
    assert len(advice["pinning"]) == 8
    assert "NVLink joins 16 of 28 pairs" in text
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_a_narrow_terminal_gets_a_folded_matrix_and_a_pipe_a_whole_one(topo, paste, monkeypatch):
    file = paste(nccl.hgx())
    whole = topo("--import", file)[1]
    monkeypatch.setattr("gpucheck.cli.topo.columns", lambda _: 80)
    folded = topo("--import", file)[1]

    assert max(map(len, whole.splitlines())) > 100
    assert "share a row" in folded


def test_unreadable_input_leaves_the_old_output_alone(topo, paste, tmp_path):
    output = tmp_path / "topo.out"
    output.write_text("old")

    assert topo("--import", paste("nothing"), "-o", str(output))[0] == 64
    assert output.read_text() == "old"


def test_reading_a_paste_loads_nothing_heavy(paste):
    """The whole command stays below 0.35 s; torch alone takes seconds."""
    code = (
        "import sys; from gpucheck.cli import main\n"
        f"try: main(['topo', '--import', {paste(PAIR)!r}])\n"
        "except SystemExit: pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "NV4" in done.stdout
    assert "'gpucheck'" in done.stderr
    for heavy in ("torch", "numpy", "rich", "ansible", "docker", "pynvml", "jinja2"):
        assert f"'{heavy}'" not in done.stderr
