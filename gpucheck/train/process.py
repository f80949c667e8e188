"""One rank as its supervisor sees it: a process group, the tail of what it prints, where it is, and what it left."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from gpucheck.processes.group import Group
from gpucheck.processes.lifeline import stack_of
from gpucheck.train.outcome import RankReport
from gpucheck.train.progress import START, Position, read_position
from gpucheck.train.workplace import RankError, Workplace

OUTPUT_BYTES = 8192
PIPE_BYTES = 1 << 20


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one rank when the run was over.

    status: exit status, negative for a signal as subprocess has it; None for a rank that was still running.
    process_state: the kernel's letter for a rank that was still running. report, error: what it left.
    unreadable: why a report that is there, or should be, cannot be used. stack: innermost call first.
    """

    rank: int
    position: Position
    status: int | None = None
    process_state: str | None = None
    report: RankReport | None = None
    error: RankError | None = None
    unreadable: str | None = None
    stack: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class RankProcess:
    """A rank, running; the group is the rank with everything that it starts."""

    def __init__(self, rank: int, place: Workplace, environment: Mapping[str, str]) -> None:
        self.rank = rank
        self._place = place
        self._output = bytearray()
        # The working folder is the run's own: a data.py or random.py in the caller's would be imported otherwise.
        self.group = Group(
            [sys.executable, "-m", "gpucheck.train.rank", str(place.folder), str(rank)],
            environment,
            folder=place.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._process = self.group.process
        self._pipe = self._process.stdout.fileno() if self._process.stdout else -1
        os.set_blocking(self._pipe, False)
        with suppress(PermissionError):  # a user with many pipes gets no larger ones; the rank then prints more slowly
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def drain(self) -> None:
        """Take what the rank printed, so that it never blocks on a full pipe; keep the tail."""
        try:
            self._output += os.read(self._pipe, PIPE_BYTES)
        except BlockingIOError:
            return
        del self._output[:-OUTPUT_BYTES]

    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self.group.status()

    def position(self) -> Position:
        """Where it is, or was."""
        return read_position(self._place.progress(self.rank))

    def sound(self) -> bool:
        """Whether a rank that exited has left a report that can be read."""
        return self.status() == 0 and self._report()[0] is not None

    def request_stack(self) -> bool:
        """Ask for the Python stacks; False for a rank that is dead, or that does not listen yet and would be killed."""
        if self.status() is not None or self.position().phase == START.phase:
            return False
        self._process.send_signal(signal.SIGUSR1)
        return True

    def stack(self) -> tuple[str, ...]:
        """The main thread's frames, innermost first, as faulthandler wrote them; empty if it has not."""
        text = self._place.real(_read_text(self._place.stack(self.rank)))
        return stack_of(text, "gpucheck/train/rank.py")

    def end(self) -> RankEnd:
        """Everything known, now."""
        self.drain()
        status = self.status()
        report, unreadable = self._report() if status == 0 else (None, None)
        return RankEnd(
            rank=self.rank,
            position=self.position(),
            status=status,
            process_state=self._state() if status is None else None,
            report=report,
            unreadable=unreadable,
            error=self._error(),
            stack=self.stack(),
            output=_tail(bytes(self._output)),
        )

    def _report(self) -> tuple[RankReport | None, str | None]:
        try:
            report = msgspec.json.decode(self._place.report(self.rank).read_bytes(), type=RankReport)
        except FileNotFoundError:
            return None, "it ended with exit status 0 and left no report"
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return None, f"its report cannot be read: {error}"
        if report.rank != self.rank:
            return None, f"its report is that of rank {report.rank}"
        return report, None

    def _error(self) -> RankError | None:
        """The error on record, with the package's real folder in place of the run's link to it."""
        try:
            content = self._place.error(self.rank).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return msgspec.json.decode(self._place.real(content), type=RankError)

    def _state(self) -> str | None:
        stat = _read_text(Path(f"/proc/{self._process.pid}/stat"))
        return stat.rpartition(")")[2].split()[0] if stat else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _tail(output: bytes, lines: int = 8, width: int = 200) -> tuple[str, ...]:
    """The last lines that a terminal can show."""
    text = output.decode("utf-8", errors="replace")
    printable = ("".join(c for c in line if c.isprintable())[:width].strip() for line in text.splitlines())
    return tuple([line for line in printable if line][-lines:])


def wait_for_stacks(ranks: list[RankProcess], seconds: float) -> None:
    """Ask every rank that still runs for its stack and wait until the answers are there, or the time is over."""
    asked = [rank for rank in ranks if rank.request_stack()]
    until = time.monotonic() + seconds
    while any(not rank.stack() for rank in asked) and time.monotonic() < until:
        time.sleep(0.02)
