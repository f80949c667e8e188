"""Termination by a signal: a command removes what it started and wrote, and its exit status names the signal."""

import os
import signal
import subprocess
import sys
import uuid

import pytest

from tests.train.conftest import end_processes_with, heed_interrupts, hidden_gpus, processes_with, wait_until

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck"]
# What runs until it is ended, and the file in the temporary folder that shows its children at work.
LONG = {
    "collectives": (["collectives", "--sizes", "64M", "--timeout", "600"], "gpucheck-*/collectives-*/pid-1"),
    "smoke": (["smoke", "--steps", "1000000"], "gpucheck-*/smoke-*/progress-1.json"),
    "verify": (["verify", "--only", "smoke-ddp"], "gpucheck-*/smoke-*/progress-1.json"),
    "bandwidth": (["bandwidth", "--simulate", "p100-pcie-x2", "--fault", "p2p-stuck:pair=0-1", "--timeout", "100"], ""),
}


@pytest.fixture
def told(tmp_path):
    """Start a command, tell it to end once its children work; its status, what it said, its processes, its files."""
    marker = f"GPUCHECK_TEST_RUN={uuid.uuid4()}"
    name, _, value = marker.partition("=")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), name: value}

    def tell(command, *numbers, before=heed_interrupts):
        arguments, at_work = LONG[command]
        with (tmp_path / "said").open("w+b") as said:
            process = subprocess.Popen(
                [*GPUCHECK, *arguments],
                env=environment | hidden_gpus(arguments),
                stdout=said,
                stderr=said,
                preexec_fn=before,
            )
            wait_until(lambda: len(processes_with(marker)) > 1 and (not at_work or any(temporary.glob(at_work))), 60.0)
            for number in numbers:
                process.send_signal(number)
            status = process.wait(60)
        return status, processes_with(marker), list(temporary.iterdir()), (tmp_path / "said").read_text()

    yield tell
    end_processes_with(marker)


@pytest.mark.parametrize("command", LONG)
def test_nothing_is_left_after_sigterm(told, command):
    status, processes, files, said = told(command, signal.SIGTERM)

    assert (status, processes, files) == (143, [], [])
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        ([signal.SIGTERM, signal.SIGTERM], 143),  # as timeout(1) does: to the process, and to its group
        ([signal.SIGHUP], 129),
        ([signal.SIGINT], 130),
    ],
    ids=str,
)
def test_what_ends_it_is_its_status(told, numbers, status):
    assert told("collectives", *numbers)[:3] == (status, [], [])


def test_a_hang_up_that_nohup_ignores_ends_nothing(told):
    def nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert told("collectives", signal.SIGHUP, signal.SIGTERM, before=nohup)[:3] == (143, [], [])
