"""Where -o may point: stdout, pipes, devices and descriptors as well as files; what a loss there is."""

import json
import os
import stat
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests import forked
from tests.cli.test_exit_status import QUICK, machine_in_the_cache, shell
from tests.shared import sampled
from tests.stack.test_cli import site  # noqa: F401 - a fixture

VERIFY = f"$G {' '.join(QUICK)} --format json"


@pytest.mark.parametrize("name", sampled(["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"], (1, 3)))
def test_stdout_has_its_names(tmp_path, name):
    """Also where stdout is a file: as root, a rename would put a file in the place of /dev/stdout."""
    kind = os.lstat("/dev/stdout").st_mode
    status, out, _ = shell(f"cd {tmp_path}; {VERIFY} -o {name}")
    to_file = shell(f"cd {tmp_path}; echo before >>all; {VERIFY} -o {name} >>all")

    assert (status, json.loads(out)["verdict"], to_file) == (0, "pass", (0, "", ""))
    assert (tmp_path / "all").read_text().startswith("before\n{")
    assert [path.name for path in tmp_path.iterdir()] == ["all"]
    assert os.lstat("/dev/stdout").st_mode == kind


@pytest.mark.parametrize(
    "arguments",
    [
        "topo --simulate p100-pcie-x2 -o -", "profiles -o -", "diagnose --kinds -o -",
        "image --level quick -o -", "stack rules -o -", "bandwidth --simulate p100-pcie-x2 --level quick -o -",
    ],
)  # fmt: skip
def test_a_dash_is_stdout_wherever_there_is_an_o(tmp_path, arguments):
    done = forked.gpucheck(*arguments.split(), cwd=tmp_path)

    assert done.stdout
    assert "Error" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_recording_goes_to_stdout(tmp_path):
    assert shell(f"cd {tmp_path}; $G record --simulate no-gpu -o - | gzip -t")[:2] == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_goes_to_stdout(site):  # noqa: F811 - the fixture
    words = f"cd {site}; $G stack lock --spec stack.yml --facts lab-apt.json --facts lab-dnf.json"
    status, out, _ = shell(f"{words} -o -")

    assert status == 0
    assert out.startswith("# ")
    assert not (site / "-").exists()
    assert shell(f"{words} -o - --all-hosts plans")[0] == 64


def test_pipes_devices_and_descriptors_are_written_to(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
    assert shell(f"{VERIFY} -o {fifo}")[0] == 0
    assert json.loads(read.communicate()[0])["verdict"] == "pass"
    assert stat.S_ISFIFO(fifo.stat().st_mode)

    assert shell(f"{VERIFY} -o /dev/null") == (0, "", "")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert shell(f"{VERIFY} -o /dev/fd/5 5>{tmp_path}/five")[0] == 0
    assert json.loads((tmp_path / "five").read_text())["verdict"] == "pass"
    packed = subprocess.run(
        ["bash", "-c", f"{VERIFY} -o >(gzip >{tmp_path}/packed)".replace("$G", "gpucheck")],
        env=os.environ | {"PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"}, check=False,
    )  # fmt: skip
    assert packed.returncode == 0


COMMANDS = ("verify --simulate p100-pcie-x2", "topo --simulate p100-pcie-x2", "record")
UNWRITABLE = ("file/report", "/dev/fd/77", "x" * 300, "no/such/report", "/proc/report")


# Every output with one of the commands, in turn.
@pytest.mark.parametrize(
    ("output", "command"), sampled(product(UNWRITABLE, COMMANDS), lambda number, _: number % 3 == number // 3 % 3)
)
def test_what_cannot_be_written_is_64_before_the_work(tmp_path, command, output):
    (tmp_path / "file").write_text("old")
    status, out, err = shell(f"cd {tmp_path}; $G {command} -o {output}")

    assert (status, out) == (64, "")
    assert f"{output}: cannot" in err
    assert "Traceback" not in err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("command", [VERIFY, "$G topo --simulate p100-pcie-x2", "$G record --simulate p100-pcie-x2"])
def test_a_file_that_fails_while_it_is_written_is_74_and_the_old_one_stays(tmp_path, command):
    machine_in_the_cache()
    old = tmp_path / "report"
    old.write_text("old")
    limit = "ulimit -f 1" if "topo" not in command else "ulimit -f 0"
    status, out, err = shell(f"{limit}; {command} -o {old}", PYTHONDONTWRITEBYTECODE="1")

    assert (status, out) == (74, "")
    assert f"{old}: the report could not be written: File too large" in err
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize(
    ("words", "taken", "mode"),
    [
        ((*QUICK, "--format", "json"), 0o022, 0o640),
        ((*QUICK, "--format", "prometheus"), 0o022, 0o644),
        ((*QUICK, "--format", "prometheus"), 0o077, 0o600),
        (("record", "--simulate", "p100-pcie-x2"), 0o022, 0o640),
    ],
)
def test_a_report_is_not_for_every_user_and_metrics_are(run, tmp_path, words, taken, mode):
    """node_exporter is another user; everybody else has no business with a host's processes."""
    before = os.umask(taken)
    try:
        run(*words, "-o", tmp_path / "new")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
