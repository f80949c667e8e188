"""A call of NVML that hangs or crashes does so where and how it was ordered, and takes only its caller along."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def hanging(machine: Path, code: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "LD_LIBRARY_PATH": str(machine / "lib")}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def kernel_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("how", "letter"), [("sleeping", "S"), ("uninterruptible", "D")])
def test_hang_is_where_it_was_ordered_and_looks_as_ordered(activate, how, letter):
    """Asleep, SIGTERM ends it; in the kernel, only SIGKILL, and nothing is left behind."""
    machine = activate("p100-pcie-x2", [f"nvml-hang:call=nvmlDeviceGetCount,state={how}"])
    process = hanging(machine, "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()")
    deadline = time.monotonic() + 30
    loaded = Path(f"/proc/{process.pid}/maps")
    while time.monotonic() < deadline and not (
        "libnvidia-ml" in loaded.read_text() and kernel_state(process.pid) == letter
    ):
        time.sleep(0.02)
    assert kernel_state(process.pid) == letter

    process.send_signal(signal.SIGTERM)
    if how == "uninterruptible":
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
    assert process.wait(10) == (-signal.SIGTERM if how == "sleeping" else -signal.SIGKILL)


def test_crash_is_an_abort_of_the_caller(activate):
    machine = activate("p100-pcie-x2", ["nvml-crash:call=nvmlDeviceGetUUID"])
    code = "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))"

    assert hanging(machine, code).wait(30) == -signal.SIGABRT
