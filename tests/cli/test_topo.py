"""gpucheck topo as people call it: this machine, a simulated one, a paste; exit status and where the output goes."""

import io
import json
import subprocess
import sys

import msgspec
import pytest

from gpucheck.cli import main
from gpucheck.imports import Kind
from gpucheck.model import NvmlFailure, Simulation
from gpucheck.simulator import profile_names
from tests.fakes import SYSTEM, FakeHost
from tests.imports import nccl
from tests.imports.corpus import by_id
from tests.machines import h100, on_bus, p100, reading

PAIR = by_id("topo-3090x2-nv4-am4")
MESH = by_id("topo-v100sxm2x8-1nic")
P100S = (p100(0), p100(1))
NOT_LOADED = NvmlFailure(call="nvmlInit_v2", code=9, name="NVML_ERROR_DRIVER_NOT_LOADED")


@pytest.fixture
def topo(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["topo", *arguments])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return run


@pytest.fixture
def on(monkeypatch, topo):
    """Run on a host made of values."""

    def run(host, *arguments):
        monkeypatch.setattr("gpucheck.host.live_host", lambda **_: host)
        return topo(*arguments)

    return run


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


def test_a_paste_is_shown_as_text_without_colour_when_piped(topo, paste):
    status, out, _ = topo("--import", paste(PAIR))

    assert status == 0
    assert "GPU0   X    NV4" in out
    assert "\x1b" not in out


def test_standard_input_is_read(topo, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PAIR.encode())))

    assert "NV4" in topo("--import", "-")[1]


@pytest.mark.parametrize(
    ("dropped", "status"),
    [((), 0), (("GPU3",), 1), (("GPU3", "GPU5"), 3), (("NIC0",), 0)],
)
def test_the_exit_status_says_how_much_was_lost(topo, paste, dropped, status):
    """Recovered by symmetry is a WARN, not known is UNKNOWN; a missing NIC row loses nothing about GPUs."""
    text = "\n".join(line for line in MESH.splitlines() if not (dropped and line.startswith(dropped)))

    assert topo("--import", paste(text))[0] == status


def test_strict_lets_not_knowing_outrank_a_warning(topo, paste):
    text = "\n".join(line for line in MESH.splitlines() if not line.startswith(("GPU3", "GPU5")))
    file = paste(text.replace("GPU0\t X \tNV1", "GPU0\t X \tNV2"))

    assert topo("--import", file)[0] == 1
    assert topo("--import", file, "--strict")[0] == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The -i command line argument must be used in conjunction with -n or -p.",
        "\tGPU0\tGPU1\tCPU Aff",
        "\tGPU0\tGPU1\tCPU Affinity\n",
        PAIR.encode("utf-16"),
        b"\x7fELF\0\0",
        b"\xff\xfe\xfd" * 100,
    ],
)
def test_unreadable_input_is_3_and_one_clear_line(topo, paste, text):
    file = paste(text)
    status, out, err = topo("--import", file)

    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    assert err.startswith(f"Error: {file}: ")
    assert "Traceback" not in err


def test_nccl_xml_is_recognised(topo, paste):
    status, out, _ = topo("--import", paste(nccl.hgx()), "--format", "json")
    answer = json.loads(out)

    assert (status, answer["source"]) == (0, "nccl-xml")
    assert answer["pairs"][0]["class"] == "NV18"
    assert answer["nics"][0]["classes"][:2] == ["PIX", "NODE"]


def test_a_dump_of_another_kind_is_3_and_names_the_command_that_reads_it(topo, paste, monkeypatch):
    kind = Kind(
        "nvbandwidth",
        "the output of nvbandwidth",
        lambda text: "memcpy CE" in text,
        lambda text: None,
        holds="bandwidth",
        command="gpucheck diagnose --bandwidth FILE",
    )
    monkeypatch.setattr("gpucheck.imports.all_kinds", lambda: (kind,))
    status, out, err = topo("--import", paste("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"))

    assert (status, out, err.count("\n")) == (3, "", 1)
    assert "the output of nvbandwidth, which holds bandwidth" in err
    assert "gpucheck diagnose --bandwidth FILE" in err


def test_best_shows_the_gpus_of_a_job_and_how_to_start_it(topo, paste):
    file = paste(nccl.mesh())
    status, out, _ = topo("--import", file, "--best", "4")
    best = json.loads(topo("--import", file, "--best", "4", "--format", "json")[1])["advice"]["best"]

    assert status == 0
    assert "  4 GPUs: 0, 1, 2, 3: slowest pair NV1" in out
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in out
    assert "numactl --cpunodebind=0 --membind=0" in out
    assert [choice["gpus"] for choice in best] == [[0, 1, 2, 3]]


def test_more_gpus_than_there_are_is_wrong_usage(topo, paste):
    status, out, err = topo("--import", paste(PAIR), "--best", "3")

    assert (status, out) == (64, "")
    assert "a job of 3 GPUs does not fit on 2" in err


def test_without_being_asked_json_has_advice_and_text_only_what_is_uneven(topo, paste):
    file = paste(nccl.mesh())
    advice = json.loads(topo("--import", file, "--format", "json")[1])["advice"]
    text = topo("--import", file)[1]

    assert [choice["size"] for choice in advice["best"]] == [2, 4]
    assert len(advice["pinning"]) == 8
    assert "NVLink joins 16 of 28 pairs" in text
    assert "CUDA_VISIBLE_DEVICES" not in text


def test_the_tree_takes_the_place_of_the_matrix(topo, paste):
    status, out, _ = topo("--import", paste(nccl.hgx()), "--tree")

    assert status == 0
    assert "└── NVLink" in out
    assert "\x1b" not in out


def test_the_drawing_is_written_beside_the_report(topo, paste, tmp_path):
    file = tmp_path / "machine.svg"
    status, out, _ = topo("--import", paste(nccl.hgx()), "--svg", str(file))

    assert status == 0
    assert "NV18" in out
    assert file.read_text().startswith("<svg ")


def test_a_drawing_that_cannot_be_written_is_64_with_the_reason(topo, paste, tmp_path):
    (tmp_path / "file").write_text("")
    status, out, err = topo("--import", paste(PAIR), "--svg", str(tmp_path / "file" / "x.svg"))

    assert (status, out, err.count("\n")) == (64, "", 1)
    assert "cannot write" in err


def test_a_narrow_terminal_gets_a_folded_matrix_and_a_pipe_a_whole_one(topo, paste, monkeypatch):
    file = paste(nccl.hgx())
    whole = topo("--import", file)[1]
    monkeypatch.setattr("gpucheck.cli.topo._columns", lambda: 80)
    folded = topo("--import", file)[1]

    assert max(map(len, whole.splitlines())) > 100
    assert "share a row" in folded


@pytest.mark.parametrize("name", ["does-not-exist.txt", "."])
def test_a_file_that_cannot_be_opened_is_3(topo, tmp_path, name):
    status, _, err = topo("--import", str(tmp_path / name))

    assert status == 3
    assert "cannot be read" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["--import"],
        ["surplus"],
        ["--format", "yaml"],
        ["--import", "x", "--simulate", "dgx2-v100"],
        ["--fault", "nouveau"],
        ["--best", "0"],
        ["--best", "two"],
    ],
)
def test_wrong_usage_is_64(topo, arguments):
    status, out, err = topo(*arguments)

    assert (status, out) == (64, "")
    assert "Error: " in err


def test_the_output_file_is_complete_and_alone(topo, paste, tmp_path):
    output = tmp_path / "new" / "topo.json"
    status, out, _ = topo("--import", paste(PAIR), "--format", "json", "-o", str(output))

    assert (status, out) == (0, "")
    assert json.loads(output.read_text())["schema"] == "gpucheck.topology/1"
    assert list(output.parent.iterdir()) == [output]


def test_unreadable_input_leaves_the_old_output_alone(topo, paste, tmp_path):
    output = tmp_path / "topo.out"
    output.write_text("old")

    assert topo("--import", paste("nothing"), "-o", str(output))[0] == 3
    assert output.read_text() == "old"


def test_a_healthy_host_is_0(on):
    status, out, _ = on(FakeHost(nvml_=reading(*P100S), pci_=on_bus(*P100S)))

    assert status == 0
    assert "GPU 0: Tesla P100-PCIE-16GB (UUID: GPU-0) 0000:03:00.0" in out
    assert "SIMULATED" not in out


def test_a_simulated_host_says_so_in_both_formats(on):
    host = FakeHost(
        nvml_=reading(*P100S), pci_=on_bus(*P100S), simulation_=Simulation(profile="p100-pcie-x2", faults=("nouveau",))
    )

    assert on(host)[1].startswith("SIMULATED p100-pcie-x2, nouveau")
    assert json.loads(on(host, "--format", "json")[1])["simulated"] is True


def test_a_disagreement_is_1(on):
    status, out, _ = on(FakeHost(nvml_=reading(*P100S, ancestor="SYS"), pci_=on_bus(*P100S)))

    assert status == 1
    assert "WARN" in out


def test_the_cpu_of_the_host_counts(on):
    """Two GPUs below one host bridge of an Intel CPU."""
    host = FakeHost(
        nvml_=reading(*P100S, ancestor="PHB"),
        files={"/proc/cpuinfo": "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n"},
    )

    assert "x 0.68 same host bridge" in on(host)[1]


@pytest.mark.parametrize(("container", "status"), [(None, 1), ("docker", 0)])
def test_a_gpu_that_nvml_does_not_list_is_named(on, container, status):
    """A container is given some of the GPUs and sees all of them on the PCI bus: that is no fault."""
    system = msgspec.structs.replace(SYSTEM, container=container)
    answer, out, _ = on(FakeHost(system_=system, nvml_=reading(P100S[0]), pci_=on_bus(*P100S)))

    assert answer == status
    assert "gpu:0000:04:00.0: on the PCI bus, not in NVML" in out


def test_nvml_is_asked_in_a_child_with_a_deadline(monkeypatch, topo):
    """A wedged driver blocks NVML for ever; the matrix must not hang with it."""
    asked = {}
    monkeypatch.setattr("gpucheck.host.live_host", lambda **how: asked.update(how) or FakeHost())
    topo("--timeout", "3")

    assert asked == {"isolated": True, "deadline_s": 3.0, "health": False, "begin": True}


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (FakeHost(), "--simulate"),
        (FakeHost(pci_=on_bus(*P100S), nvml_=NOT_LOADED), "gpucheck verify --only driver"),
        (FakeHost(nvml_=reading()), "--simulate"),
        (FakeHost(nvml_=reading(), pci_=on_bus(h100(0))), "gpucheck verify --only inventory"),
    ],
)
def test_a_host_without_gpus_or_driver_is_3_with_the_next_step(on, host, words):
    status, out, _ = on(host)

    assert status == 3
    assert out.startswith("UNKNOWN  topology  host: ")
    assert words in out


def test_no_driver_has_its_cause_in_json(on):
    status, out, _ = on(FakeHost(pci_=on_bus(*P100S), nvml_=NOT_LOADED), "--format", "json")
    answer = json.loads(out)

    assert (status, answer["gpus"], answer["matrix"]) == (3, [], [])
    assert answer["findings"][0]["cause"] == "driver-not-loaded"


@pytest.mark.parametrize(
    ("profile", "count", "cls"),
    [("hgx-h100-x8", 8, "NV18"), ("p100-pcie-x2", 2, "PIX"), ("p100-pcie-x2-sys", 2, "SYS")],
)
def test_a_simulated_machine_through_the_real_nvml_binding(profile, count, cls):
    """In a process of its own: one process loads one NVML library."""
    command = [sys.executable, "-m", "gpucheck", "topo", "--simulate", profile, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert answer["simulated"] is True
    assert len(answer["gpus"]) == count
    assert {pair["class"] for pair in answer["pairs"]} == {cls}
    assert all(pair["expected"]["unidirectional_gb_s"] > 0 for pair in answer["pairs"])


@pytest.mark.parametrize("profile", sorted(set(profile_names()) - {"no-gpu"}))
def test_nvml_and_sysfs_agree_on_every_simulated_machine(profile):
    """Two independent witnesses: a disagreement would be a WARN and exit status 1."""
    command = [sys.executable, "-m", "gpucheck", "topo", "--simulate", profile]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"SIMULATED {profile}: ")


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
