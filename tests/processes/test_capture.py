"""A Python child that is run to its end: what it printed, or that the host had no room for it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gpucheck.images import probe
from gpucheck.images.judge import _full
from gpucheck.model import Verdict
from gpucheck.processes import capture as capture_module
from gpucheck.processes.capture import Captured, HostResources, capture
from tests.train.conftest import Marked, wait_until

PYTHON = [sys.executable, "-c"]


def test_output_and_status_of_a_program_and_of_a_module():
    done = capture([*PYTHON, "import sys; print(sys.argv); sys.stderr.write('no'); sys.exit(3)", "a"], 20.0)
    assert done == Captured(3, b"['-c', 'a']\n", b"no")

    done = capture([sys.executable, "-m", "json.tool", "--help"], 20.0)
    assert (done.status, b"usage: " in done.stdout) == (0, True)


def test_a_child_that_does_not_end_is_ended_with_all_that_it_started():
    """subprocess.run would wait for ever for a grandchild that keeps the pipe open."""
    began = time.monotonic()
    done = capture([*PYTHON, "import subprocess; print(1, flush=True); subprocess.run(['sleep', '60'])"], 1.0)

    assert (done.status, done.stdout) == (None, b"1\n")
    assert time.monotonic() - began < 50.0


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed from outside (SIGKILL)"),
        ("import os; os.kill(os.getpid(), 15)", "killed from outside (SIGTERM)"),
        ("raise MemoryError", "no resources for the process: MemoryError"),
        ("raise OSError(12, 'Cannot allocate memory')", "no resources for the process"),
    ],
)
def test_what_the_host_did_is_no_result(code, reason):
    with pytest.raises(HostResources) as caught:
        capture([*PYTHON, code], 20.0)
    assert reason in str(caught.value)


def test_a_crash_is_a_result():
    assert capture([*PYTHON, "import os; os.abort()"], 20.0).status == -signal.SIGABRT


@pytest.mark.parametrize("number", [11, 12, 24])
def test_a_child_that_cannot_start_says_nothing_about_an_image(monkeypatch, number):
    """EAGAIN, ENOMEM, EMFILE: the image's framework is unknown, not broken."""

    def refused(*_arguments, **_streams):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(capture_module, "Group", refused)
    told = probe.query_framework("torch")
    assert told == {"unknown": f"{sys.executable} could not be started: {os.strerror(number)}"}
    assert os.strerror(number) in (probe.query_libraries(quick=True).error or "")

    manifest = probe.ImageManifest(variant="x", framework="torch", version="2", build="cpu", python="3", base="b")
    (found,) = _full(type("Values", (), {"manifest": manifest, "full": told})())
    assert (found.verdict, found.code) == (Verdict.UNKNOWN, "images.import-unknown")


def test_a_child_ends_with_the_process_that_waits_for_it():
    code = (
        "import sys; from gpucheck.processes.capture import capture; "
        "capture([sys.executable, '-c', 'import time, json.tool; time.sleep(60)'], 60)"
    )
    with Marked() as marked:
        waiting = subprocess.Popen([*PYTHON, code], env=os.environ | marked.environment)
        wait_until(lambda: len(marked.running()) == 2)
        time.sleep(0.5)
        waiting.kill()
        waiting.wait()
        wait_until(lambda: not marked.running(), 30.0)
