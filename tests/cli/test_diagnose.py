"""gpucheck diagnose: numbers of elsewhere in, one answer out, one clear line for anything else."""

import json
from pathlib import Path

import pytest

from gpucheck.cli.diagnose import COMMAND
from gpucheck.diagnose import hypotheses, page
from tests.diagnose.perf_cases import observations
from tests.render import judgements

ROOT = Path(__file__).parent.parent.parent
PASTES = ROOT / "tests" / "data" / "bandwidth"
NUMBERS = "gpus: {count: 8}\np2p_access: all\n"
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
    path.write_text(json.dumps(observations(name)), encoding="utf-8")
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


def test_the_text_names_cause_reason_and_remedy(diagnose, tmp_path):
    code, text = diagnose("--observations", written(tmp_path, "wrx90-2switch-uplink-gen2"))

    assert code == 2
    assert "cause     uplink-downgraded (certain)" in text
    assert "20:01.1 at 5 GT/s" in text
    assert "fix       check: lspci -vv -s 0000:20:01.1" in text


def test_pasted_output_of_three_tools_is_one_machine(diagnose, tmp_path):
    topo = tmp_path / "topo.txt"
    topo.write_text(TOPO, encoding="utf-8")
    code, text = diagnose(
        "--topo",
        topo,
        "--bandwidth",
        PASTES / "nvbandwidth.txt",
        "--nccl",
        PASTES / "nccl-tests.json",
        "--format",
        "json",
    )
    answer = json.loads(text)

    assert code == 1  # NCCL_ALGO is set
    assert answer["gpus"] == 2
    assert {row["cause"] for row in answer["findings"]} == {"leftover-environment", None}
    assert any("18 NVLinks x 25 GB/s" in row["why"] for row in answer["findings"])


def test_p2p_below_staged_names_both_suspects(diagnose):
    code, text = diagnose("--bandwidth", PASTES / "p2p-bandwidth-latency.txt", "--format", "json")

    found = json.loads(text)["findings"][0]

    assert code == 2
    assert found["cause"] == "acs-redirect"
    assert "iommu-translation" in {other["cause"] for other in found["alternatives"]}
    assert 0.5 < found["probability"] < 0.9


def test_observations_add_what_no_tool_prints(diagnose, tmp_path):
    extra = tmp_path / "host.yml"
    extra.write_text("host: {iommu: off, acs_redirect: true}\n", encoding="utf-8")
    _, text = diagnose("--observations", extra, "--bandwidth", PASTES / "p2p-bandwidth-latency.txt", "--format", "json")

    assert {row["cause"] for row in json.loads(text)["findings"]} == {"acs-redirect"}


def test_stdin_is_read_once_only(diagnose):
    assert diagnose("--observations", "-", given="gpus: {count: 2}\n")[0] == 3
    assert diagnose("--topo", "-", "--bandwidth", "-", given=TOPO)[0] == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host: {iomu: off}\n", "line 1: host.iomu: no such key. Did you mean iommu?"),
        ("measured:\n  p2p_uni_gb_s: [[x, .nan], [1, x]]\n", "line 2: measured.p2p_uni_gb_s[0][1]: .nan"),
        ("measured:\n  p2p_uni_gb_s: [[x, 24 GiB/s], [1, x]]\n", "GiB"),
        ("measured:\n  p2p_uni_gib_s: [[x, 24], [1, x]]\n", "multiply GiB/s by 1.0737"),
        ("measured:\n  p2p_uni_gb_s: [[x, 1, 2], [1, x]]\n", "must be square"),
        ("gpus: {count: 2}\nmatrix: [[X, PI", "not YAML"),
        ("", "there is nothing in it"),
    ],
)
def test_bad_observations_are_one_line_and_exit_64(diagnose, tmp_path, text, words):
    path = tmp_path / "bad.yml"
    path.write_text(text, encoding="utf-8")
    code, message = diagnose("--observations", path)

    assert code == 64
    assert words in message
    assert "\n" not in message


def test_more_gpus_than_a_machine_has_are_refused(diagnose, tmp_path):
    """Each rule would take time that grows with the cube."""
    count = 129
    rows = ["\t".join(["", *(f"GPU{gpu}" for gpu in range(count))])]
    rows += ["\t".join([f"GPU{a}", *("X" if a == b else "SYS" for b in range(count))]) for a in range(count)]
    (tmp_path / "topo.txt").write_text("\n".join(rows) + "\n")
    code, message = diagnose("--topo", tmp_path / "topo.txt")

    assert code == 64
    assert "more than 128 GPUs, which no machine has" in message


def test_a_missing_file_and_no_input_say_so(diagnose):
    assert diagnose("--observations", "/nonexistent.yml") == (
        64, "/nonexistent.yml: cannot be read: No such file or directory. Give a file, or - for stdin.",
    )  # fmt: skip
    assert diagnose()[0] == 64


@pytest.fixture
def weighed(monkeypatch):
    """The judge's answer is one narrow link and its runner-up."""
    monkeypatch.setattr("gpucheck.run.pastes.evaluate", lambda seen: judgements.winner())


@pytest.mark.usefixtures("weighed")
def test_json_carries_the_ranking_and_every_finding_its_alternatives(diagnose):
    code, text = diagnose("--observations", "-", "--format", "json", given=NUMBERS)
    answer = json.loads(text)
    found, passed = answer["findings"]

    assert code == 2
    assert (found["probability"], passed["probability"], passed["alternatives"]) == (0.92, None, [])
    assert set(found["alternatives"][0]) == {"cause", "probability", "would_show"}
    assert [one["probability"] for one in answer["ranking"]] == [0.92, 0.06, 0.012, 0.004]
    assert answer["ranking"][0]["causes"] == [["pcie-width-reduced", "gpu:0000:13:00.0"]]
    assert answer["gpu_names"][3] == "0000:13:00.0"
    assert answer["gpus"] == 8
    assert answer["decided"]


@pytest.mark.usefixtures("weighed")
@pytest.mark.parametrize(("option", "tables"), [((), 0), (("-v",), 2), (("-vv",), 2)])
def test_the_ranking_is_shown_when_asked_for(diagnose, option, tables):
    _, text = diagnose("--observations", "-", *option, given=NUMBERS)

    assert "cause     pcie-width-reduced (92 %)" in text
    assert "or        uplink-downgraded (6 %): lspci" in text
    assert text.count("If explanation") == tables
    assert text.splitlines()[-1] == "FAIL  1 fail, 1 pass"


@pytest.mark.usefixtures("weighed")
@pytest.mark.parametrize(("form", "start"), [("html", "<!doctype html>"), ("markdown", "# FAIL: gpucheck diagnose")])
def test_the_page_and_the_markdown_go_to_a_file(diagnose, tmp_path, form, start):
    name = tmp_path / "diagnosis"
    code, text = diagnose("--observations", "-", "--format", form, "-o", name, given=NUMBERS)

    assert (code, text) == (2, "")
    assert name.read_text(encoding="utf-8").startswith(start)


def test_the_page_of_hypotheses_is_current():
    """Made by: gpucheck diagnose --hypotheses -o docs/diagnose-hypotheses.md"""
    assert (ROOT / "docs" / "diagnose-hypotheses.md").read_text(encoding="utf-8") == page.hypotheses_page()


def test_the_former_name_of_the_option_still_works(diagnose):
    assert diagnose("--rules") == diagnose("--hypotheses") == (0, page.hypotheses_page())
    assert "--rules" not in COMMAND.get_help(COMMAND.make_context("diagnose", [], resilient_parsing=True))


def test_the_page_tells_each_hypothesis_with_its_sources(monkeypatch):
    one = hypotheses.Hypothesis(
        name="narrow-link", causes=("pcie-width-reduced",), title="Lanes that are missing",
        possible_when="a GPU has a PCIe link", predicts="copies with it at the reduced width", prior="1 in 100",
        never_explains="NVLink", sources=("jan#183", "a manual"), instances=lambda machine: iter(()),
    )  # fmt: skip
    monkeypatch.setattr(page, "all_hypotheses", lambda: (one,))
    text = page.hypotheses_page()

    assert (
        "| [narrow-link](#narrow-link-lanes-that-are-missing): Lanes that are missing | `pcie-width-reduced` |" in text
    )
    assert "## narrow-link: Lanes that are missing\n\n- Causes: `pcie-width-reduced`\n- Possible when: a GPU" in text
    assert "- Sources: [jan#183](https://github.com/janhq/jan/issues/183); a manual" in text
    assert "- Real machines: none published; simulated ones only" in text


XID = "[   12.345678] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
QUIET = "[    4.378677] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  525.147.01  Wed Oct 11 10:20:43 UTC 2023\n"


@pytest.mark.parametrize(
    ("log", "status", "verdict", "causes"),
    [
        (XID, 2, "fail", ["gpu-lost"]),
        (QUIET, 0, "pass", [None]),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32\n", 1, "warn", ["nvswitch-error"]),
    ],
)
def test_a_pasted_kernel_log_is_judged_alone(diagnose, log, status, verdict, causes):
    """Numbers that were not given are not asked for."""
    code, text = diagnose("--kernel-log", "-", "--format", "json", given=log)
    answer = json.loads(text)

    assert (code, answer["verdict"]) == (status, verdict)
    assert [finding["cause"] for finding in answer["findings"]] == causes
    assert {finding["check"] for finding in answer["findings"]} == {"kernel-log"}


def test_a_kernel_log_adds_to_measurements_and_names_its_gpus(diagnose, tmp_path):
    log = tmp_path / "dmesg.txt"
    log.write_text(XID, encoding="utf-8")
    code, text = diagnose(
        "--observations", written(tmp_path, "h100x8-nvswitch-healthy"), "--kernel-log", log, "--format", "json"
    )
    answer = json.loads(text)

    assert (code, answer["verdict"], answer["gpus"]) == (2, "fail", 8)
    assert {"kernel-log"} < {finding["check"] for finding in answer["findings"]}
    assert json.loads(diagnose("--kernel-log", log, "--format", "json")[1])["gpus"] == 1
