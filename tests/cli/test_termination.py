"""Termination by a signal: a command removes what it started and wrote, and its exit status names the signal."""

import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import GPUCHECK
from tests.train.conftest import heed_interrupts, hidden_gpus, wait_until

pytestmark = pytest.mark.slow

# What runs until it is ended, and the file in the temporary folder that shows its children at work.
LONG = {
    "collectives": (["collectives", "--sizes", "64M", "--timeout", "600"], "gpucheck-*/collectives-*/stack-1.txt"),
    "smoke": (["smoke", "--steps", "1000000"], "gpucheck-*/smoke-*/stack-1.txt"),
    "bandwidth": (["bandwidth", "--simulate", "p100-pcie-x2", "--fault", "p2p-stuck:pair=0-1"], ""),
}


class Ended(NamedTuple):
    """How a command ended. processes, files: those that remain."""

    status: int
    processes: list[int]
    files: list[Path]
    out: str
    err: str


@pytest.fixture
def ended(tmp_path, marked):
    """Start a command, and send it signals once its children work."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def ended(command, *numbers, before=heed_interrupts):
        arguments, at_work = LONG[command]
        environment = marked.environment | {"TMPDIR": str(temporary)} | hidden_gpus(arguments)
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = subprocess.Popen(
                [*GPUCHECK, *arguments], env=environment, stdout=out, stderr=err, preexec_fn=before
            )
            wait_until(lambda: len(marked.running()) > 1 and (not at_work or any(temporary.glob(at_work))), 60.0)
            for number in numbers:
                process.send_signal(number)
            status = process.wait(60)
        printed = ((tmp_path / name).read_text() for name in ("out", "err"))
        return Ended(status, marked.running(), list(temporary.iterdir()), *printed)

    return ended


@pytest.mark.parametrize("command", LONG)
def test_nothing_is_left_after_sigterm(ended, command):
    found = ended(command, signal.SIGTERM)

    assert found[:3] == (143, [], [])
    assert "Traceback" not in found.out + found.err


def test_ctrl_c_prints_one_line_and_no_report(ended):
    found = ended("smoke", signal.SIGINT)

    assert found[:3] == (130, [], [])
    assert (found.out, found.err.splitlines()[-1]) == ("", "gpucheck: interrupted")


def test_a_hang_up_ends_it_unless_nohup_ignores_it(ended):
    def nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert ended("bandwidth", signal.SIGHUP)[:3] == (129, [], [])
    assert ended("bandwidth", signal.SIGHUP, signal.SIGTERM, before=nohup)[:3] == (143, [], [])
