"""A child's lines arrive in order and in time, its end is described, and nothing of it remains."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpucheck.processes.child import Child, Ending
from tests.processes.test_group import state
from tests.shared import END_S


@contextmanager
def child(body, *arguments, **options):
    program = f"import os, signal, sys, time\npipe = int(sys.argv[1])\n{body}"
    started = Child((sys.executable, "-c", program), os.environ, *arguments, **options)
    try:
        yield started
    finally:
        started.end()


def soon():
    return time.monotonic() + END_S


def test_lines_arrive_in_order_and_none_follows_the_last():
    with child("os.write(pipe, b'one\\ntw'); time.sleep(0.05); os.write(pipe, b'o\\nrest')") as talking:
        assert [talking.read_line(soon()) for _ in range(3)] == [b"one", b"two", None]


def test_child_responds_to_what_it_is_sent():
    body = "for line in sys.stdin.buffer: os.write(pipe, line.upper())"
    with child(body, stdin=subprocess.PIPE) as echo:
        for word in (b"a", b"b"):
            echo.send(word)
            assert echo.read_line(soon()) == word.upper()


def test_child_that_ended_can_be_sent_a_line():
    with child("", stdin=subprocess.PIPE) as ended:
        ended.process.wait(END_S)
        ended.send(b"x" * (1 << 20))

        assert ended.read_line(soon()) is None


def test_arguments_follow_the_descriptor():
    with child("os.write(pipe, ' '.join(sys.argv[2:]).encode() + b'\\n')", "identity", "7") as asked:
        assert asked.read_line(soon()) == b"identity 7"


def test_chatter_on_stderr_does_not_move_the_deadline():
    with child("while True: sys.stderr.write('noise\\n' * 1000)") as noisy, pytest.raises(TimeoutError):
        noisy.read_line(time.monotonic() + 0.3)


def test_line_that_is_too_long_is_returned_as_far_as_it_came(monkeypatch):
    monkeypatch.setattr("gpucheck.processes.child.LONGEST_LINE", 1000)
    with child("os.write(pipe, b'x' * 500000)") as long:
        line = long.read_line(soon())

    assert line is not None
    assert 1000 < len(line) <= 500000


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("sys.exit('first\\nno such library')", Ending("exited", "1", "no such library")),
        ("", Ending("exited", "0", "")),
        ("sys.stderr.write('z' * 5000000 + '\\nlast\\n')", Ending("exited", "0", "last")),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Ending("crashed", "SIGSEGV", "")),
        ("os.kill(os.getpid(), signal.SIGKILL)", Ending("killed", "SIGKILL", "")),
        ("os.kill(os.getpid(), 42)", Ending("killed", "signal 42", "")),
        ("os.close(pipe); time.sleep(60)", Ending("running", "", "")),
    ],
)
def test_end_of_a_child_is_described(body, ending):
    with child(body) as ended:
        assert ended.read_line(soon()) is None
        assert ended.how_it_ended() == ending


def test_child_and_what_it_started_are_ended():
    body = (
        "import subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "started = subprocess.Popen(['sleep', '60'])\n"
        "os.write(pipe, b'%d\\n' % started.pid); time.sleep(60)"
    )
    with child(body) as parent:
        below = int(parent.read_line(soon()) or 0)

    assert state(parent.process.pid) is None
    assert state(below) in ("Z", None), "init may take its time to collect it"


def test_no_descriptor_remains_open():
    def open_files():
        return {path.name for path in Path("/proc/self/fd").iterdir()}

    before = open_files()
    with child("time.sleep(60)", stdin=subprocess.PIPE):
        pass
    with pytest.raises(FileNotFoundError):
        Child(("/no/such/program",), os.environ)

    assert open_files() == before
