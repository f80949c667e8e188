"""The progress line: step and number, from two seconds on the time, and nothing after the end."""

import os
import pty
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from gpucheck.cli._shared import progress as module
from gpucheck.cli._shared.progress import Progress, progress_end


class Screen:
    """A terminal that keeps what is written to it."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


@pytest.fixture
def screen(monkeypatch):
    made = Screen()
    # Not sys.stderr: pytest replaces that between a fixture and its test.
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setenv("TERM", "xterm")
    yield made
    progress_end()


def test_a_step_has_its_number(screen):
    progress = Progress(43)
    progress("acs")
    progress("bar1")

    assert screen.text.split("\r\033[K")[1:] == ["gpucheck: step 1 of 43: acs ...", "gpucheck: step 2 of 43: bar1 ..."]


def test_a_long_step_has_its_time(screen, monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    monkeypatch.setattr(module, "SHOWN_FROM_S", 0.1)
    progress = Progress(2)
    progress("p2p")
    deadline = time.monotonic() + 10
    while ", 0 s ..." not in screen.text and time.monotonic() < deadline:
        time.sleep(0.02)

    assert "gpucheck: step 1 of 2: p2p, 0 s ..." in screen.text


def test_nothing_is_drawn_after_the_end(screen, monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    monkeypatch.setattr(module, "SHOWN_FROM_S", 0.0)
    Progress(2)("p2p")
    progress_end()
    before = screen.text
    time.sleep(0.1)

    assert screen.text == before
    assert before.endswith("\r\033[K")


@pytest.mark.parametrize(
    "surroundings", [{"TERM": "dumb"}, {"TERM": "xterm", "plain": "1"}], ids=["dumb", "no terminal"]
)
def test_nothing_is_drawn_elsewhere(screen, monkeypatch, surroundings):
    monkeypatch.setenv("TERM", surroundings["TERM"])
    if "plain" in surroundings:
        monkeypatch.setattr(Screen, "isatty", lambda self: False)
    Progress(2)("p2p")
    progress_end()

    assert screen.text == ""


def test_verify_counts_its_steps():
    main, other = pty.openpty()
    words = [sys.executable, "-m", "gpucheck", "verify", "--simulate", "p100-pcie-x2", "--level", "quick"]
    done = subprocess.run(
        words, stdout=subprocess.DEVNULL, stderr=other, env={**os.environ, "TERM": "xterm"}, check=False, timeout=120
    )
    os.close(other)
    text = os.read(main, 65536).decode()

    numbers = [(int(n), int(of)) for n, of in re.findall(r"step (\d+) of (\d+): ", text)]
    assert done.returncode == 0
    assert [n for n, _ in numbers] == list(range(1, numbers[0][1] + 1))
    assert text.endswith("\r\x1b[K")
