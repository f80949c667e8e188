"""The progress line: step and number, from two seconds on the time, and nothing after the end."""

import re
import time
from types import SimpleNamespace

import pytest

from gpucheck.cli._shared import progress as module
from gpucheck.cli._shared.progress import Progress, progress_end, steps
from tests.cli.commands import on_a_terminal
from tests.fleet import reports
from tests.shared import END_S


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
    deadline = time.monotonic() + END_S
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


def test_of_many_items_not_each_is_drawn_and_the_time_is_that_of_all(screen, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock) / 100)
    with steps(300, "report") as progress:
        for number in range(300):
            progress(f"node{number}")
    drawn = screen.text.split("\r\033[K")[1:-1]

    assert drawn[0] == "gpucheck: report 1 of 300: node0 ..."
    assert 20 < len(drawn) < 60
    assert re.fullmatch(r"gpucheck: report \d+ of 300: node\d+, [23] s \.\.\.", drawn[-1])
    assert screen.text.endswith("\r\033[K")


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


def drawn_by(words, **environment):
    """Exit status, and what gpucheck draws on stderr."""
    return on_a_terminal(*words, stream="stderr", **environment)


def test_verify_counts_its_steps():
    """Also without colors."""
    status, text = drawn_by(["verify", "--simulate", "p100-pcie-x2", "--level", "quick"], NO_COLOR="1")

    # A step of more than two seconds is drawn again, with its time.
    numbers = list(dict.fromkeys((int(n), int(of)) for n, of in re.findall(r"step (\d+) of (\d+): ", text)))
    assert status == 0
    assert [n for n, _ in numbers] == list(range(1, numbers[0][1] + 1))
    assert text.endswith("\r\x1b[K")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Reports of a small fleet."""
    return reports.write(tmp_path_factory.mktemp("progress"), *reports.steady(3))


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        (["fleet", "report", "{folder}"], "gpucheck: report 1 of 3: "),
        (["diagnose", "{folder}/paste.txt"], "gpucheck: step 1 of 2: read "),
        (["bandwidth", "--simulate", "p100-pcie-x2", "--level", "quick"], "gpucheck: step 1 of "),
        (["collectives", "--simulate", "p100-pcie-x2", "--sizes", "1K"], "gpucheck: step 1 of 1: collectives"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_every_long_command_has_progress_on_a_terminal(words, drawn, folder):
    """Ranks that cannot import torch end at once, after the line is drawn."""
    (folder / "paste.txt").write_text("GPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    (folder / "torch.py").write_text("raise ImportError\n")
    words = [word.format(folder=folder) for word in words]
    status, text = drawn_by(words, PYTHONPATH=str(folder))

    assert status < 4
    assert drawn in text
