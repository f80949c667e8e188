"""gpucheck diagnose FILE: what is recognized, what the answer names, and what is wrong usage."""

import gzip
import json
from pathlib import Path

import pytest

from gpucheck.imports import all_kinds
from tests.imports.pastes.samples import KERNEL, MATRIX, samples

USAGE = 64


@pytest.fixture
def diagnose(run, tmp_path):
    """Run it with these texts or bytes as files; exit status, stdout, stderr."""

    def diagnose(*arguments, texts=()):
        files = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.txt"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            files.append(path)
        return run("diagnose", *files, *arguments)

    return diagnose


def refused(answer):
    """The one line that wrong usage prints."""
    code, out, err = answer
    assert (code, out) == (USAGE, "")
    assert err.count("\n") == 1, err
    return err


def test_the_answer_is_first_and_frames_are_verbose(diagnose):
    paste = f"Our box:\n{MATRIX}\nAnd then it hangs\n{KERNEL}\njob 7: error: 12 of 16\n"
    short, whole = (diagnose(*options, texts=[paste])[1] for options in ((), ("-v",)))

    assert "read as nvidia-smi-topo: lines 2-6" in whole
    assert "looked at" in whole
    frames = ("read as", "looked at", "Our box:", "And then it hangs")
    assert [word in whole for word in frames] == [True] * 4
    assert [word in short for word in frames] == [False] * 4
    assert "line 14: job 7: error: 12 of 16" in short


@pytest.mark.parametrize("kind", samples())
def test_a_kind_that_the_user_names_is_read_as_that(diagnose, kind):
    _, out, _ = diagnose("--as", kind, "--format", "json", texts=[samples()[kind]])

    assert {one["kind"] for one in json.loads(out)["read"]} == {kind}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "input is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        ("Dear all,\nthe GPUs are slow.\n", "nothing in the input is recognized"),
        (b"\x1f\x8b\x08\0damaged", "cut off in the middle"),
    ],
)
def test_what_is_no_output_of_a_tool_is_wrong_usage(diagnose, content, words):
    assert words in refused(diagnose(texts=[content]))


def test_a_packed_file_is_read(diagnose):
    code, out, _ = diagnose("--format", "json", texts=[gzip.compress(KERNEL.encode())])

    assert (code, json.loads(out)["verdict"]) == (2, "fail")


TWO_HOSTS = f"me@node07:~$ nvidia-smi topo -m\n{MATRIX}me@node08:~$ sudo dmesg\n{KERNEL}"


def test_two_machines_are_both_judged_or_one_is_chosen(diagnose):
    code, out, _ = diagnose("--format", "json", texts=[TWO_HOSTS])
    answer = json.loads(out)

    assert (code, answer["verdict"]) == (2, "fail")
    assert [(one["machine"], one["verdict"]) for one in answer["machines"]] == [
        ("node07", "unknown"),
        ("node08", "fail"),
    ]
    assert diagnose("--machine", "node07", texts=[TWO_HOSTS])[0] == 3
    assert diagnose("--machine", "node08", texts=[TWO_HOSTS])[0] == 2
    assert "node09" in refused(diagnose("--machine", "node09", texts=[TWO_HOSTS]))


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_every_format_has_the_findings_of_each_machine(diagnose, format_):
    code, out, _ = diagnose("--no-redact", "--format", format_, texts=[TWO_HOSTS])

    assert code == 2
    first, second = out.index("node07, 4 GPUs: UNKNOWN"), out.index("node08, 1 GPU: FAIL")
    assert first < out.index("copies not measured") < second < out.index("gpu-lost", second)


def test_stdin_is_read_without_an_argument(run):
    code, out, _ = run("diagnose", "--format", "json", given=KERNEL)

    assert (code, json.loads(out)["source"]) == (2, ["stdin"])


def test_a_terminal_is_not_read_without_an_argument(run, monkeypatch):
    monkeypatch.setattr("gpucheck.cli.diagnose.is_terminal", lambda: True)

    assert "no input" in refused(run("diagnose", given=KERNEL))


@pytest.mark.parametrize(
    ("typed", "answers", "code"),
    [
        (KERNEL, 2, 2),  # what is pasted counts
        ("\n", 1, 3),  # Enter
        ("", 1, 3),  # Ctrl-D
        ("what?\n", 1, 3),
    ],
)
def test_a_person_is_asked_for_the_output_that_decides(run, monkeypatch, tmp_path, typed, answers, code):
    monkeypatch.setattr("gpucheck.cli.diagnose.may_ask", lambda: True)
    (tmp_path / "error.txt").write_text("No devices were found?\nRuntimeError: No CUDA GPUs are available\n")
    status, out, err = run("diagnose", str(tmp_path / "error.txt"), given=typed)

    assert (out.count("gpucheck diagnose"), status) == (answers, code)
    assert "nvidia-smi -L" in err


def test_an_interrupt_at_the_question_keeps_the_answer(run, monkeypatch, tmp_path):
    class Interrupted:
        def readline(self, _):
            raise KeyboardInterrupt

    monkeypatch.setattr("gpucheck.cli.diagnose.may_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", Interrupted())
    (tmp_path / "error.txt").write_text("RuntimeError: No CUDA GPUs are available\n")

    assert run("diagnose", str(tmp_path / "error.txt"))[0] == 3


def test_a_program_is_not_asked(run, tmp_path):
    (tmp_path / "error.txt").write_text("RuntimeError: No CUDA GPUs are available\n")

    assert run("diagnose", str(tmp_path / "error.txt"), given=KERNEL)[::2] == (3, "")


def test_the_model_is_given_where_no_input_names_it(diagnose):
    _, out, _ = diagnose("--gpu", "NVIDIA A100-SXM4-80GB", "--format", "json", texts=[MATRIX])

    assert {gpu["model"] for gpu in json.loads(out)["observations"]["gpus"]} == {"NVIDIA A100-SXM4-80GB"}


def test_the_kinds_are_listed_once_each(diagnose):
    code, out, _ = diagnose("--kinds")
    names = [line.split()[0] for line in out.splitlines()]

    assert code == 0
    assert names == sorted({kind.name for kind in all_kinds()})


def test_markdown_names_no_host_user_address_or_serial_number(diagnose, tmp_path):
    paste = (
        "Nov 22 10:00:00 node07 kernel: [ 12.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
        "Nov 22 10:00:00 node07 kernel: [ 12.6] NVRM: GPU serial number 1321021036387\n"
        "contact bob@example.com at 203.0.113.7 on node07\n"
    )
    _, redacted, _ = diagnose("--format", "markdown", texts=[paste])
    _, open_, _ = diagnose("--format", "markdown", "--no-redact", texts=[paste])

    assert "gpu-lost" in redacted
    assert "0000:3b:00.0" in redacted
    assert not [word for word in ("node07", "bob", "203.0.113.7", "1321021036387", str(tmp_path)) if word in redacted]
    assert "0.txt" in open_


def test_the_first_places_that_were_not_understood_are_listed_and_the_rest_counted(diagnose):
    line = "[  {0}.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    paste = "\n\n".join(f"job {n}: error: of nothing\n\n{line.format(n)}" for n in range(100, 108))

    short, whole = (diagnose(*options, texts=[paste])[1] for options in ((), ("-v",)))

    assert [f"job {n}: error" in short for n in range(100, 108)] == [True] * 5 + [False] * 3
    assert "and 3 more places (-v lists them)" in short
    assert "job 107: error" in whole


PASTES = Path(__file__).parents[1] / "data" / "bandwidth"


def test_observations_add_what_no_tool_prints(diagnose, tmp_path):
    extra = tmp_path / "host.yml"
    extra.write_text("host: {iommu: off, acs_redirect: true}\n", encoding="utf-8")
    _, out, _ = diagnose("--observations", extra, PASTES / "p2p-bandwidth-latency.txt", "--format", "json")

    assert {row["cause"] for row in json.loads(out)["findings"]} == {"acs-redirect"}


def test_stdin_is_read_once_only(run):
    assert run("diagnose", "--observations", "-", given="gpus: {count: 2}\n")[0] == 3
    assert "read once only" in refused(run("diagnose", "-", "-", given=MATRIX))


def test_more_gpus_than_a_machine_has_are_not_evaluated(diagnose):
    """Each rule would take time that grows with the cube."""
    count = 129
    rows = ["\t".join(["", *(f"GPU{gpu}" for gpu in range(count))])]
    rows += ["\t".join([f"GPU{a}", *("X" if a == b else "SYS" for b in range(count))]) for a in range(count)]
    code, out, err = diagnose(texts=["\n".join(rows) + "\n"])

    assert code == 3
    assert "more than 128 GPUs" in out + err
