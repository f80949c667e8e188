"""One rank as its supervisor sees it: a process group, the end of its output, its progress, and the files it left."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from gpucheck.processes.group import Group
from gpucheck.processes.lifeline import stack_of
from gpucheck.processes.python import python_module
from gpucheck.processes.ranks.rank import STACK_MARK
from gpucheck.processes.ranks.run_directory import RankError, RunDirectory, read_progress

OUTPUT_BYTES = 8192
PIPE_BYTES = 1 << 20


class HasRank(Protocol):
    """A report names the rank that wrote it."""

    @property
    def rank(self) -> int:
        """Over all hosts."""


Report = TypeVar("Report", bound=HasRank)


class RankEnd(msgspec.Struct, Generic[Report], frozen=True, kw_only=True):
    """State of one rank at the end of the run.

    progress: its last progress line. status: exit status, negative for a signal as in subprocess; None if it was still
    running. process_state: the kernel's one-letter state, of a running rank. unreadable: why its report is missing or
    invalid although the exit status is 0. stack, of a running or crashed rank: innermost call first. output: the last
    printable lines of stdout and stderr.
    """

    rank: int
    progress: bytes = b""
    status: int | None = None
    process_state: str | None = None
    report: Report | None = None
    error: RankError | None = None
    unreadable: str | None = None
    stack: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class RankProcess(Generic[Report]):
    """A rank that was started; ``group`` is the rank with all processes that it starts. Raises OSError."""

    def __init__(
        self,
        rank: int,
        program: Sequence[str],
        directory: RunDirectory,
        environment: Mapping[str, str],
        report: type[Report],
    ) -> None:
        self.rank = rank
        self._directory = directory
        self._output = bytearray()
        self._type = report
        self._read: tuple[Report | None, str | None] | None = None
        self.group = Group(
            [*python_module(program[0]), *program[1:], str(directory.path), str(rank)],
            environment,
            folder=directory.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._process = self.group.process
        self.pid = self._process.pid
        self._pipe = self._process.stdout.fileno() if self._process.stdout else -1
        os.set_blocking(self._pipe, False)
        with suppress(PermissionError):  # a user with many pipes gets no larger ones; the rank then prints more slowly
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def drain(self) -> None:
        """Read the output, so that the rank never blocks on a full pipe; keep the end of it."""
        try:
            self._output += os.read(self._pipe, PIPE_BYTES)
        except BlockingIOError:
            return
        del self._output[:-OUTPUT_BYTES]

    def status(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self.group.status()

    def progress(self) -> bytes:
        """Return the last progress line; empty before the first."""
        return read_progress(self._directory.progress(self.rank))

    def is_sound(self) -> bool:
        """Return whether a rank that exited left a valid report."""
        return self.status() == 0 and self._report()[0] is not None

    def request_stack(self) -> bool:
        """Request the Python stacks; False for a rank that has ended, or that the signal would still kill."""
        if self.status() is not None or not self._directory.pid(self.rank).exists():
            return False
        self._process.send_signal(signal.SIGUSR1)
        return True

    def stack(self) -> tuple[str, ...]:
        """Return the frames of the main thread, innermost first; empty if faulthandler wrote none."""
        return stack_of(self._directory.with_real_paths(_text(self._directory.stack(self.rank))), STACK_MARK)

    def end(self) -> RankEnd[Report]:
        self.drain()
        status = self.status()
        report, unreadable = self._report() if status == 0 else (None, None)
        return RankEnd(
            rank=self.rank,
            progress=self.progress(),
            status=status,
            process_state=self._state() if status is None else None,
            report=report,
            unreadable=unreadable,
            error=self._error(),
            stack=self.stack(),
            output=_last_lines(bytes(self._output)),
        )

    def _report(self) -> tuple[Report | None, str | None]:
        """Return the report of a rank that exited, or why there is none."""
        if self._read is None:
            self._read = self._read_report()
        return self._read

    def _read_report(self) -> tuple[Report | None, str | None]:
        try:
            report = msgspec.json.decode(self._directory.report(self.rank).read_bytes(), type=self._type)
        except FileNotFoundError:
            return None, "it ended with exit status 0 and left no report"
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return None, f"its report cannot be read: {error}"
        if report.rank != self.rank:
            return None, f"its report is that of rank {report.rank}"
        return report, None

    def _error(self) -> RankError | None:
        try:
            content = self._directory.error(self.rank).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return msgspec.json.decode(self._directory.with_real_paths(content), type=RankError)

    def _state(self) -> str | None:
        stat = _text(Path(f"/proc/{self._process.pid}/stat"))
        return stat.rpartition(")")[2].split()[0] if stat else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _last_lines(output: bytes, lines: int = 8, width: int = 200) -> tuple[str, ...]:
    """Return the last lines, without characters that a terminal cannot show."""
    text = output.decode("utf-8", errors="replace")
    printable = ("".join(c for c in line if c.isprintable())[:width].strip() for line in text.splitlines())
    return tuple([line for line in printable if line][-lines:])
