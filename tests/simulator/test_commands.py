"""gpucheck profiles and gpucheck simulate, as a user calls them."""

import json
import signal
import subprocess
import sys

import pytest

from gpucheck import simulator
from tests import forked
from tests.shared import END_S

pytestmark = pytest.mark.slow

COUNT = """
import ctypes, pynvml, sys
pynvml.nvmlInit()
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))
print(pynvml.nvmlDeviceGetCount(), count.value)
sys.exit(7)
"""


@pytest.fixture
def gpucheck(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(*arguments):
        return forked.gpucheck(*arguments)

    return run


def test_profiles_lists_every_machine_and_fault(gpucheck):
    listing = json.loads(gpucheck("profiles", "--format", "json").stdout)
    text = gpucheck("profiles").stdout

    assert listing["schema"] == "gpucheck.profiles/1"
    assert tuple(profile["name"] for profile in listing["profiles"]) == simulator.profile_names()
    assert {p["name"]: p["gpus"] for p in listing["profiles"]}["hgx-h100-x8"] == 8
    assert [fault["name"] for fault in listing["faults"]] == [fault.name for fault in simulator.all_faults()]
    assert "SIMULATED" in text
    assert "pcie-width:gpu=N,width=N" in text


def test_client_sees_the_machine_and_its_status_comes_through(gpucheck):
    """The client loads the libraries by itself: it knows nothing of gpucheck."""
    done = gpucheck("simulate", "hgx-h100-x8", "--fault", "gpu-missing:gpu=1", "--", sys.executable, "-c", COUNT)

    assert (done.returncode, done.stdout) == (7, "7 7\n")
    assert done.stderr == "gpucheck: SIMULATED hardware: hgx-h100-x8 with gpu-missing:gpu=1\n"


def test_a_signal_reaches_the_command_itself(gpucheck):
    """The command takes our place: what kills it is what the caller sees. SIMULATED is said once."""
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    done = gpucheck("simulate", "p100-pcie-x2", "--", sys.executable, "-c", kill)

    assert done.returncode == -signal.SIGTERM
    assert done.stderr.count("SIMULATED") == 1


def test_interrupt_is_the_commands_to_handle(monkeypatch, cache):
    """Ctrl-C: the command ends as it wants to, with its own status."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    code = """if True:
        import time
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            raise SystemExit(5)
    """
    command = [sys.executable, "-m", "gpucheck", "simulate", "no-gpu", "--", sys.executable, "-c", code]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # What a shell runs in the background ignores SIGINT and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)

        assert process.wait(END_S) == 5


def test_options_of_the_command_are_not_ours(gpucheck):
    done = gpucheck("simulate", "no-gpu", "echo", "--fault", "x", "--help")

    assert (done.returncode, done.stdout) == (0, "--fault x --help\n")


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [("no-such-command", 127, "command not found on PATH"), ("/etc", 126, "cannot be run")],
)
def test_a_command_that_cannot_be_run_is_one_clear_line(gpucheck, command, status, message):
    done = gpucheck("simulate", "p100-pcie-x2", "--", command)

    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_machine_of_ones_own_is_kept(gpucheck, tmp_path):
    """Made without a command, used through the environment."""
    machine = tmp_path / "machine"
    made = gpucheck("simulate", "p100-pcie-x2", "--fault", "gpu-missing:gpu=1", "-o", str(machine))

    assert (made.returncode, made.stdout) == (0, f"GPUCHECK_SIMULATOR={machine}\n")
    assert "gpu.count = 1\n" in (machine / "machine.txt").read_text()
