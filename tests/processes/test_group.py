"""A process and everything that it starts end as one, in the time they are given."""

import os
import signal
import sys
from pathlib import Path

import pytest

from gpucheck.processes.group import Group, end
from tests.shared import END_S

# Starts a grandchild that ignores SIGTERM, tells its number, and waits.
FAMILY = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""
PATIENCE = ((signal.SIGTERM, 0.2), (signal.SIGKILL, 5.0))
pytestmark = pytest.mark.slow


def started(code: str, **streams) -> Group:
    return Group([sys.executable, "-c", code], os.environ, **streams)


def state(pid: int) -> str | None:
    """The kernel's letter for it; None where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def test_a_dead_leader_keeps_its_number_until_it_is_collected():
    """Otherwise a signal to its group could reach strangers."""
    group = started("raise SystemExit(7)")

    assert group.wait(END_S) == 7
    os.kill(group.process.pid, 0)
    assert end([group], PATIENCE) == ()
    with pytest.raises(ProcessLookupError):
        os.kill(group.process.pid, 0)


def test_a_signal_is_a_negative_status_before_and_after_it_is_collected():
    group = started("import os, signal; os.kill(os.getpid(), signal.SIGABRT)")

    assert group.wait(END_S) == -signal.SIGABRT
    end([group], PATIENCE)
    assert group.status() == -signal.SIGABRT


def test_a_grandchild_that_ignores_sigterm_goes_with_its_family():
    pipe, told = os.pipe()
    group = started(FAMILY, stdout=told)
    os.close(told)
    with os.fdopen(pipe) as answer:
        grandchild = int(answer.readline())

    assert end([group], PATIENCE) == ()
    assert state(grandchild) in ("Z", None), "init may take its time to collect it"
