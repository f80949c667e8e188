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

COUNT = "import pynvml, sys; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount()); sys.exit(7)"


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
    """The client loads the library by itself: it knows nothing of gpucheck."""
    done = gpucheck("simulate", "hgx-h100-x8", "--fault", "gpu-missing:gpu=1", "--", sys.executable, "-c", COUNT)

    assert (done.returncode, done.stdout) == (7, "7\n")
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
    ("arguments", "status", "message"),
    [
        (["p100-pcie-x3", "--", "true"], 64, "Did you mean p100-pcie-x2?"),
        (["p100-pcie-x2", "--fault", "nope", "--", "true"], 64, "unknown fault 'nope'"),
        (["p100-pcie-x2", "--fault=gpu-lost:gpu=5", "--", "true"], 64, "there is no GPU 5"),
        (["p100-pcie-x2", "--"], 64, "no command to run"),
        (["p100-pcie-x2", "--fault"], 64, "requires an argument"),
        (["p100-pcie-x2", "--", "no-such-command"], 127, "command not found on PATH"),
        (["p100-pcie-x2", "--", "/etc"], 126, "cannot be run"),
        ([], 64, "no machine to simulate"),
        (["no-such.yml", "--", "true"], 64, "no-such.yml: cannot be read: No such file"),
        (["no-gpu", "-o", "/proc/nowhere", "--", "true"], 64, "Choose a writable directory"),
    ],
)
def test_wrong_usage_is_one_clear_line(gpucheck, arguments, status, message):
    done = gpucheck("simulate", *arguments)

    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_machine_of_ones_own_is_kept(gpucheck, tmp_path):
    """Made without a command, used through the environment."""
    machine = tmp_path / "machine"
    made = gpucheck("simulate", "p100-pcie-x2", "--fault", "gpu-missing:gpu=1", "-o", str(machine))

    assert (made.returncode, made.stdout) == (0, f"GPUCHECK_SIMULATOR={machine}\n")
    assert "gpu.count = 1\n" in (machine / "machine.txt").read_text()
