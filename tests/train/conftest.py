"""Runs of the toy program, and the two things that no run may leave: processes and files."""

import os
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpucheck.model.smoke import SmokeFailure, SmokeResult
from gpucheck.train.smoke import conclude, rank_environment, train_in_ranks
from gpucheck.train.spec import SmokeOptions, TrainingFault
from tests.shared import END_S

ROOT = Path(__file__).parents[2]
STALL_S = 1.0  # for runs that are to hang; short, and long enough for a busy machine
Run = Callable[..., SmokeResult | SmokeFailure]


def heed_interrupts() -> None:
    """For a child to be interrupted: a background job ignores SIGINT and SIGQUIT, one of nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def hidden_gpus(arguments: Sequence[str]) -> dict[str, str]:
    """Environment for a command that must run without GPUs. Simulated ones would be hidden too, and not copied."""
    return {} if "--simulate" in arguments else {"CUDA_VISIBLE_DEVICES": ""}


def processes_with(marker: str) -> list[int]:
    """Living processes whose environment holds the marker, so also what the ranks started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marker.encode() in environment and state != "Z" and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def end_processes_with(marker: str) -> None:
    """So that a test that fails leaves nothing either."""
    for process in processes_with(marker):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class Marked:
    """A mark for all that a test starts with this environment; what still runs at the end of the block is ended."""

    def __init__(self) -> None:
        self.environment = {"GPUCHECK_TEST_RUN": str(uuid.uuid4())}
        self.marker = f"GPUCHECK_TEST_RUN={self.environment['GPUCHECK_TEST_RUN']}"

    def running(self) -> list[int]:
        return processes_with(self.marker)

    def __enter__(self) -> "Marked":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        end_processes_with(self.marker)


@contextmanager
def nothing_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Temporary files go to the folder; afterwards there is none, and no marked process."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with Marked() as marked:
        yield marked
        left = marked.running()
    assert left == []
    assert list(folder.iterdir()) == []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the toy with a fault and options; afterwards nothing of it may be left."""
    with nothing_left(tmp_path, monkeypatch) as marked:

        def go(fault: TrainingFault | None = None, *, toy: str = "", **options: object) -> SmokeResult | SmokeFailure:
            chosen = SmokeOptions(**({"steps": 10, "stall_s": 20.0, "fault": fault} | options))  # type: ignore[arg-type]
            environment, removed = rank_environment(os.environ, chosen)
            environment |= {"PYTHONPATH": str(ROOT), "TOY": toy} | marked.environment
            return conclude(train_in_ranks("tests.train.toy:run", chosen, environment), chosen, removed)

        yield go


def wait_until(true: Callable[[], bool], seconds: float = END_S) -> None:
    """Raises AssertionError where it does not come true."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
