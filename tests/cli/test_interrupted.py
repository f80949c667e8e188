"""Ctrl-C and SIGTERM in the middle of verify: what was found is printed, at once, and nothing is left behind."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked
from tests.cli.commands import GPUCHECK, read_all
from tests.shared import END_S, sampled
from tests.train.conftest import heed_interrupts, hidden_gpus, wait_until

pytestmark = pytest.mark.slow

VERIFY = [*GPUCHECK, "verify"]
HANG = ["--simulate", "hgx-h100-x8", "--level", "quick", "--fault"]
# Where the run is when the signal comes: the arguments, and what marks the process that is waited for then.
PHASES = {
    "nvml": ([*HANG, "nvml-hang"], "gpucheck.host.nvml.child"),
    "nvml in state D": ([*HANG, "nvml-hang:state=uninterruptible"], "gpucheck.host.nvml.child"),
    "a program": (["--only", "quick"], "slow-program"),
    "copies": ([*HANG[:2], "--only", "p2p", "--fault", "p2p-stuck:pair=0-1"], "gpucheck.measure.running.child"),
    "training": (["--only", "smoke-ddp"], "gpucheck.train.rank"),
}
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
# A measured end takes 0.1 to 0.5 s; this only catches one that waits for what hangs, which is 20 s or more.
AT_ONCE_S = 15.0


def running(marked, words):
    done = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    found = {int(line.split()[0]) for line in done.stdout.splitlines() if words in line}
    return bool(found & set(marked.running()))


def in_a_step(pid, terminal):
    """Each step has a thread of its own, and so has the progress line of a terminal."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()) > (2 if terminal else 1)


@pytest.fixture
def cut(tmp_path, marked):
    """Start verify, send signals when its child is at work: status, seconds, stdout, stderr, what is left behind."""
    temporary, programs = tmp_path / "tmp", tmp_path / "bin"
    temporary.mkdir()
    programs.mkdir()
    for program in ("systemctl", "journalctl", "dpkg-query", "rpm"):
        (programs / program).write_text("#!/bin/sh\n: slow-program\nsleep 600\n")
        (programs / program).chmod(0o755)

    def run(phase, *signals, arguments=(), terminal=False, before=heed_interrupts):
        words, at_work = PHASES[phase]
        path = f"{programs}:{os.environ['PATH']}" if phase == "a program" else os.environ["PATH"]
        at_work = str(programs) if phase == "a program" else at_work
        environment = marked.environment | {"TMPDIR": str(temporary), "PATH": path, "TERM": "xterm"}
        environment |= hidden_gpus(words)
        ours, theirs = pty.openpty() if terminal else (None, subprocess.PIPE)
        command = subprocess.Popen(
            [*VERIFY, *words, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
            stderr=theirs, preexec_fn=before,
        )  # fmt: skip
        wait_until(lambda: in_a_step(command.pid, terminal) and running(marked, at_work))
        time.sleep(0.2)
        began = time.monotonic()
        for number in signals:
            command.send_signal(number)
        if ours is not None:
            os.close(theirs)
            out, err = read_all(ours), ""
            status = command.wait(END_S)
        else:
            out, err = (text.decode() for text in command.communicate(timeout=END_S))
            status = command.returncode
        seconds = time.monotonic() - began
        return status, seconds, out, err, marked.running(), list(temporary.iterdir())

    return run


ENDS = [(phase, number, terminal) for phase in PHASES for number in STATUS for terminal in (False, True)]


# Every phase with Ctrl-C on a terminal or SIGTERM without one, in turn.
@pytest.mark.parametrize(
    ("phase", "number", "terminal"), sampled(ENDS, lambda number, _: number % 4 == 1 + number // 4 % 2)
)
def test_what_was_found_is_printed_at_once(cut, phase, number, terminal):
    status = STATUS[number]
    seen, seconds, out, err, processes, files = cut(phase, number, terminal=terminal)

    assert (seen, processes, files) == (status, [], [])
    assert seconds < AT_ONCE_S
    last = [line.strip() for line in (out + err).splitlines() if line.strip()][-2:]
    assert last[0].startswith("interrupted after ")
    assert last[1].endswith("gpucheck: interrupted" if status == 130 else "gpucheck: terminated")
    assert "Traceback" not in out + err


def test_the_json_report_is_whole_and_marked(cut):
    status, _, out, _, _, _ = cut("training", signal.SIGINT, arguments=["--only", "driver", "--format", "json"])
    report = json.loads(out)

    assert status == 130
    assert report["schema"] == "gpucheck.report/1"
    assert report["interrupted"] is True
    assert {finding["check"] for finding in report["findings"]} >= {"driver", "verify"}
    assert report["findings"][-1]["seen"] == "interrupted after 1 of 2 steps"
    assert "smoke-ddp" in report["findings"][-1]["why"]
    assert report["verdict"] != "pass"


def test_a_driver_that_hangs_is_not_accused_by_an_interrupted_report_and_it_is_no_baseline(cut, tmp_path):
    text = cut("nvml", signal.SIGINT, arguments=["--format", "json"])[2]
    report = json.loads(text)

    assert {f["check"] for f in report["findings"] if f["verdict"] not in ("pass", "skip")} == {"verify"}
    assert report["verdict"] == "unknown"
    (tmp_path / "part").write_text(text)
    done = forked.gpucheck("verify", *HANG[:-1], "--baseline", tmp_path / "part")
    assert (done.returncode, done.stdout) == (64, "")
    assert "an interrupted run" in done.stderr


def test_an_interrupted_report_that_cannot_be_written_is_74(cut):
    assert cut("nvml", signal.SIGINT, arguments=["-o", "/dev/full"])[0] == 74


def test_a_hang_up_ends_it_unless_nohup_ignores_it(cut):
    def nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert cut("copies", signal.SIGHUP)[::4] == (129, [])
    assert cut("copies", signal.SIGHUP, signal.SIGTERM, before=nohup)[::4] == (143, [])


@pytest.mark.parametrize("number", sampled(STATUS, (1,)))
def test_a_signal_that_comes_twice_at_once_is_one(cut, number):
    """timeout(1) sends SIGTERM twice, and a wrapper forwards the Ctrl-C that the terminal also sends."""
    status, _, out, _, processes, files = cut("training", number, number)

    assert (status, processes, files) == (STATUS[number], [], [])
    assert "interrupted after" in out


def test_a_second_ctrl_c_ends_at_once(marked):
    """While what the first one began takes long; the processes still go."""
    code = (
        "import subprocess, time\n"
        "from gpucheck.processes.signals import ended_by_signals, undisturbed\n"
        "with ended_by_signals(), undisturbed():\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    subprocess.Popen(['sh', '-c', 'sleep 600; :'])\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=marked.environment, preexec_fn=heed_interrupts
    )
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(2):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)

    assert process.wait(END_S) == 130
    wait_until(lambda: marked.running() == [])


def test_a_signal_that_was_held_back_is_not_lost():
    code = (
        "import signal\n"
        "from gpucheck.processes.signals import ended_by_signals, in_a_hurry, undisturbed\n"
        "with ended_by_signals():\n"
        "    with undisturbed():\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "        print('held', in_a_hurry(), flush=True)\n"
        "    print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (143, "held True\n")
