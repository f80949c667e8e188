"""The exit status of the real command where something goes wrong: streams, defects, input, missing programs."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpucheck.model import finding
from gpucheck.processes.deadline import StuckError
from tests import forked
from tests.cli.commands import GPUCHECK
from tests.shared import sampled

QUICK = ["verify", "--simulate", "p100-pcie-x2", "--level", "quick"]
LARGE = ["verify", "--simulate", "hgx-h100-x8", "--level", "quick", "--format", "json"]  # more than a pipe holds
BROKEN = [*QUICK, "--fault", "pcie-width:gpu=1,width=8"]
# As many ways to write as there are: help, version, text through click, JSON, a page, a table.
WRITING = [
    "--help",
    "--version",
    "verify --help",
    "explain",
    "profiles",
    "explain acs-redirect",
    "diagnose --kinds",
    "topo --simulate p100-pcie-x2",
    shlex.join(QUICK),
    shlex.join([*QUICK, "--format", "json"]),
    shlex.join(BROKEN),
]


def shell(script, **environment):
    """Run a line of sh in which $G is gpucheck: its status, stdout, stderr."""
    words = {"G": shlex.join(GPUCHECK), "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    script = script.replace("$G", words["G"])
    inherited = {name: value for name, value in os.environ.items() if name != "GPUCHECK_SIMULATOR"}
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env=inherited | words)
    return done.returncode, done.stdout, done.stderr


def machine_in_the_cache():
    """Before a limit that holds for every file, so for those of the simulated machine too."""
    assert forked.gpucheck(*QUICK).returncode == 0


LOST = [(">/dev/full", "No space left on device"), (">&-", "it is closed")]


# Every third way to write, with one of the two in turn.
@pytest.mark.parametrize(
    ("arguments", "stdout", "why"),
    sampled(
        [(arguments, *lost) for arguments in WRITING for lost in LOST], lambda number, _: number % 6 == number // 6 % 2
    ),
)
def test_a_lost_stdout_is_74_and_one_line_whatever_the_verdict(arguments, stdout, why):
    status, _, err = shell(f"$G {arguments} {stdout}")

    assert status == 74
    assert err.startswith(f"Error: stdout: the report could not be written: {why}. ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("unbuffered", "format_"), [("", "html"), ("1", "json")])
def test_a_report_cut_by_a_full_disk_is_74(tmp_path, unbuffered, format_):
    """With PYTHONUNBUFFERED, as in most containers, Python drops the rest of a short write without a word."""
    report = tmp_path / "report"
    machine_in_the_cache()
    environment = {"PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"}
    status, _, err = shell(f"ulimit -f 16; $G {shlex.join(QUICK)} --format {format_} >{report}", **environment)

    assert status == 74
    assert "File too large" in err
    assert 0 < report.stat().st_size <= 16 * 1024


def test_a_closed_stderr_costs_nothing(tmp_path):
    status, out, _ = shell(f"$G {shlex.join(BROKEN)} 2>&-")

    assert status == 2
    assert "pcie-width-reduced" in out
    assert shell("$G nonsense 2>&-") == (64, "", "")
    assert shell(f"$G bandwidth --simulate p100-pcie-x2 --level quick -o {tmp_path}/b 2>/dev/full")[0] == 0
    assert shell("$G topo --import - <&-")[0] == 64


def test_with_all_three_closed_no_file_becomes_a_stream(tmp_path):
    """The first file that is opened would otherwise get the number of stdout, and the report with it."""
    report = tmp_path / "report.json"
    status, _, _ = shell(f"$G {shlex.join(QUICK)} --format json -o {report} <&- >&- 2>&-")

    assert status == 0
    assert report.read_text().startswith("{")


def test_a_reader_that_ends_first_is_141_and_quiet():
    status, out, err = shell(f"{{ $G {shlex.join(LARGE)}; echo $? >&2; }} | head -n 1")

    assert (status, out, err) == (0, "{\n", "141\n")


def test_a_stdout_that_was_left_non_blocking_gets_everything():
    receive, send = os.pipe()
    os.set_blocking(send, False)
    command = subprocess.Popen([*GPUCHECK, *LARGE], stdout=send)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        start = file.read(1)
        time.sleep(0.5)  # the pipe is full meanwhile
        report = start + file.read()

    assert command.wait() == 0
    assert len(report) > 1 << 16
    assert json.loads(report)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (IndexError("list index out of range"), 70, "defect of gpucheck, not of the host"),
        (OSError(28, "No space left on device", "/tmp/x"), 70, "No space left on device: '/tmp/x'"),
        (StuckError(20.0, ()), 3, "The driver or the kernel is unresponsive."),
    ],
)
def test_what_is_raised_is_one_line_with_its_status(run, monkeypatch, error, status, words):
    """A defect is never 1: that is WARN. What the system refuses and a read that gets stuck are none."""

    def write(*_, **__):
        raise error

    monkeypatch.setattr("gpucheck.render.write.terminal.write", write)
    monkeypatch.delenv("GPUCHECK_DEBUG", raising=False)
    words_of_run, text = ("diagnose", "--observations", "-"), "gpus: {count: 2}\n"
    seen, out, err = run(*words_of_run, given=text)
    assert (seen, out, err.count("\n")) == (status, "", 1)
    assert err.startswith("Error: ")
    assert words in err
    assert ("defect of gpucheck" in err) is isinstance(error, IndexError)

    monkeypatch.setenv("GPUCHECK_DEBUG", "1")
    assert run(*words_of_run, given=text)[2].startswith("Traceback ") is (status == 70)


def test_a_missing_program_is_3_everywhere(tmp_path):
    """The simulator without a compiler, the lab and the images without a checkout or Docker."""
    empty = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    status, out, err = shell("$G topo --simulate p100-pcie-x2", **empty)
    assert (status, out) == (3, "")
    assert "needs a C compiler" in err
    shutil.copytree(Path(__file__).parents[2] / "gpucheck", tmp_path / "installed/gpucheck")
    for arguments in (["image", "list"], ["lab", "status"]):
        place = str(tmp_path / "installed")
        code = f"import sys; sys.path.insert(0, {place!r}); from gpucheck.cli import main; main({arguments})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, ""), arguments
        assert "source checkout" in done.stderr


def test_every_status_is_in_the_help(run):
    _, out, _ = run("--help")
    known = [
        *finding.EXIT_STATUS.values(),
        *(v for n, v in vars(finding).items() if n.startswith("EXIT_") and isinstance(v, int)),
    ]

    assert set(known) <= {int(line.split()[0]) for line in out.splitlines() if line.strip()[:1].isdigit()}
    assert {"129", "143"} <= set(out.split())


def test_a_broken_package_is_70_and_one_line(tmp_path):
    """Also where the module that prints errors cannot be imported: Python's own 1 would be WARN."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgspec'] = None\n")
    root = Path(__file__).parents[2]
    status, out, err = shell(f"$G {shlex.join(QUICK)}", PYTHONPATH=f"{tmp_path}:{root}")

    assert (status, out, err.count("\n")) == (70, "", 1)
    assert err.startswith("Error: gpucheck failed: ModuleNotFoundError: ")


def test_without_file_descriptors_nothing_is_known_and_nothing_is_said_of_the_driver():
    forked.gpucheck("verify", "--simulate", "h200-x1", "--only", "driver")  # the simulated machine is built once
    status, out, _ = shell("ulimit -n 8; $G verify --simulate h200-x1 --level quick")

    assert status == 3
    assert "wedged-driver" not in out
    assert "this is not the driver's doing" in out
