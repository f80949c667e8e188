"""However a command ends, what it started ends with it: also where it had no chance to end anything itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.shared import END_S, sampled
from tests.train.conftest import Marked, heed_interrupts, hidden_gpus, wait_until

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck"]
QUICK = ["verify", "--simulate", "hgx-h100-x8", "--level", "quick", "--fault"]
# What runs until it is ended, how many processes it has then, and what marks the last of them.
AT_WORK = {
    "nvml": ([*QUICK, "nvml-hang"], 2, b"nvml.child"),
    "nvml in state D": ([*QUICK, "nvml-hang:state=uninterruptible"], 3, b"nvml.child"),
    "copies": (
        ["bandwidth", "--simulate", "p100-pcie-x2", "--fault", "p2p-stuck:pair=0-1"],
        2,
        b"gpucheck.measure.running.child",
    ),
    "copies on CPUs": (["bandwidth", "--devices", "cpu,cpu"], 4, b"gpucheck.measure.running.child"),
    "collectives": (["collectives", "--sizes", "64M", "--timeout", "600"], 3, b"gpucheck.measure.collectives.rank"),
    "training": (["smoke", "--framework", "torch", "--steps", "1000000"], 3, b"gpucheck.train.rank"),
}


def command_line(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


ENDS = [(kind, number) for kind in AT_WORK for number in (signal.SIGKILL, signal.SIGQUIT)]
KILLED = ("nvml in state D", "copies", "collectives")


@pytest.mark.parametrize(
    ("kind", "number"), sampled(ENDS, lambda _, end: end[1] is signal.SIGKILL and end[0] in KILLED)
)
def test_no_child_outlives_a_killed_command(tmp_path, kind, number):
    arguments, count, program = AT_WORK[kind]
    environment = {key: text for key, text in os.environ.items() if key != "GPUCHECK_SIMULATOR"}
    environment |= {"TMPDIR": str(tmp_path)} | hidden_gpus(arguments)
    with Marked() as marked, (tmp_path / "output").open("wb") as output:
        command = subprocess.Popen(
            [*GPUCHECK, *arguments],
            env=environment | marked.environment,
            stdout=output,
            stderr=output,
            preexec_fn=heed_interrupts,
        )
        wait_until(
            lambda: (
                len(found := marked.running()) >= count and any(program in command_line(process) for process in found)
            )
        )
        time.sleep(0.3)
        command.send_signal(number)
        assert command.wait(END_S) == -number
        wait_until(lambda: not marked.running(), 30.0)


def test_a_child_whose_parent_is_gone_before_it_begins_ends_at_once():
    """Between fork and prctl the parent may end: the kernel then sends nothing."""
    code = "import os; from gpucheck.processes.lifeline import end_with_parent; end_with_parent(os.getppid() + 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "ended before this process began" in done.stderr
