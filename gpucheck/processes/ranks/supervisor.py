"""Start the ranks of this host, watch them from outside, and end them: no rank outlasts the deadline."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from gpucheck.processes.child import Child
from gpucheck.processes.contention import MOST_WAITING, Waiting
from gpucheck.processes.environment import python_module
from gpucheck.processes.exhausted import limit_in_force
from gpucheck.processes.group import end
from gpucheck.processes.lifeline import stack_of
from gpucheck.processes.ranks.nccl_log import Taken, logging_environment, read
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.rank import STACK_MARK, Message, RankError, RankSpec, stack_file
from gpucheck.processes.signals import Cut, undisturbed
from gpucheck.processes.temporary import private_environment, temporary_folder

POLL_S = 0.02
SETTLE_S = 1.0  # the end of one rank makes the others raise: wait for their errors, then find which was first
STACK_S = 1.0
TERM_S = 1.0
KILL_S = 5.0  # a process in an uninterruptible call outlives even SIGKILL; it is reported, not waited for
OUTPUT_LINES, OUTPUT_WIDTH = 8, 200
Reason = Literal["finished", "broken", "stalled", "deadline", "interrupted"]


class HasRank(Protocol):
    """A report names the rank that wrote it."""

    @property
    def rank(self) -> int:
        """Over all hosts."""


Report = TypeVar("Report", bound=HasRank)


class RankRun(msgspec.Struct, Generic[Report], frozen=True, kw_only=True):
    """What to run. program: module and arguments; it calls ``run_rank``. options: of every rank. report: of each.

    processes: ranks over all hosts, the same number on each. timeout_s: of the run; with start_s from the moment on at
    which has_begun of the progress lines, for which there is start_s more. stall_s: the longest without another
    progress line, by the lines. No limit counts the time in which ranks waited for a processor, up to MOST_WAITING
    times as much: on a host with many more running processes than processors it would be a statement about the host.
    """

    name: str
    program: tuple[str, ...]
    options: Any
    report: type[Report]
    processes: int
    nodes: Nodes | None = None
    timeout_s: float
    start_s: float = 0.0
    has_begun: Callable[[Sequence[bytes]], bool] = lambda _: True
    stall_s: Callable[[Sequence[bytes]], float] = lambda _: math.inf


class RankEnd(msgspec.Struct, Generic[Report], kw_only=True):
    """State of one rank, in an ending that at the end of the run.

    progress: its last progress, as JSON. status: exit status, negative for a signal as in subprocess; None if it was
    still running. process_state: the kernel's one-letter state, of a running rank. part: its last report of a part.
    unreadable: why its report is missing or invalid although the exit status is 0. stack, of a running or crashed rank:
    innermost call first. output: the last printable lines of stdout and stderr.
    """

    rank: int
    progress: bytes = b""
    status: int | None = None
    process_state: str | None = None
    report: Report | None = None
    part: Report | None = None
    error: RankError | None = None
    unreadable: str | None = None
    stack: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


class Ending(msgspec.Struct, Generic[Report], frozen=True):
    """How a run ended. reason: ``broken`` if a rank ended without a valid report.

    seconds: since the start. ended: time.monotonic(). unkillable: ranks that SIGKILL did not end.
    shared: reports of ranks on other hosts. taken: from NCCL's log, empty if no rank of this host used NCCL.
    signal: what interrupted it, for the caller to raise. shortage: of memory or threads, where ranks did not finish.
    """

    reason: Reason
    ranks: tuple[RankEnd[Report], ...]
    seconds: float
    ended: float
    unkillable: tuple[int, ...] = ()
    shared: tuple[Report, ...] = ()
    taken: Taken = Taken()
    signal: Any = None  # an exception
    shortage: str | None = None

    @property
    def is_late(self) -> bool:
        return self.reason in ("stalled", "deadline")

    @property
    def errors(self) -> list[tuple[RankEnd[Report], RankError]]:
        """Return each rank that raised with its error, the first one first."""
        found = [(end, end.error) for end in self.ranks if end.error is not None]
        return sorted(found, key=lambda one: one[1].raised)


def supervise(run: RankRun[Report], environment: Mapping[str, str]) -> Ending[Report]:
    """Run the ranks of this host to their end, or to the deadline.

    When this returns or raises, no rank is left running, except the unkillable, and no file. Raises OSError if no
    process can be started.
    """
    with temporary_folder(run.name) as folder:
        own = logging_environment(folder) | private_environment(folder, environment)
        ranks: list[_Rank[Report]] = []
        started = time.monotonic()
        try:
            for spec in rank_specs(run, str(folder)):
                ranks.append(_Rank(spec, run, {**environment, **own}))  # noqa: PERF401 - kept if the next fails
            reason: Reason = "interrupted"
            cut = Cut()
            with cut:
                reason = _watch(ranks, run, started)
            ended = time.monotonic()
            if reason not in ("finished", "interrupted"):
                _wait_for_stacks(ranks)
            ends = tuple(rank.end() for rank in ranks)
        finally:
            with undisturbed():
                unkillable = _stop(ranks)
        shared = tuple(report for rank in ranks for report in rank.shared)
        shortage = None if reason in ("finished", "interrupted") else limit_in_force(len(ranks))
        return Ending(reason, ends, ended - started, ended, unkillable, shared, read(folder), cut.signal, shortage)


def rank_specs(run: RankRun[Any], folder: str) -> list[RankSpec[Any]]:
    here = run.processes // (run.nodes.count if run.nodes else 1)
    first = run.nodes.rank * here if run.nodes else 0
    return [
        RankSpec(
            rank=first + local,
            local_rank=local,
            processes=run.processes,
            parent_pid=os.getpid(),
            folder=folder,
            options=run.options,
        )
        for local in range(here)
    ]


class _Rank(Generic[Report]):
    def __init__(self, spec: RankSpec[Any], run: RankRun[Report], environment: Mapping[str, str]) -> None:
        module, *arguments = run.program
        arguments.append(str(spec.rank))
        self.child = Child(
            python_module(module), environment, *arguments, stdin=subprocess.PIPE, folder=Path(spec.folder)
        )
        self.child.send(msgspec.json.encode(spec))
        self._type, self._stack = run.report, stack_file(spec.folder, spec.rank)
        self.seen, self.ready = RankEnd[Report](rank=spec.rank), False
        self.shared: list[Report] = []

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self.child.group.status()

    def listen(self) -> None:
        """Take what it has sent and printed, so that it never waits for a full pipe."""
        with suppress(TimeoutError):
            while (line := self.child.read_line(0.0)) is not None:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line, type=Message)
            if message.kind == "ready":
                self.ready = True
            elif message.kind == "at":
                self.seen.progress = bytes(message.value)
            elif message.kind == "error":
                self.seen.error = msgspec.json.decode(message.value, type=RankError)
            elif message.kind == "shared":
                self.shared.append(msgspec.json.decode(message.value, type=self._type))
            else:
                report = msgspec.json.decode(message.value, type=self._type)
                if report.rank != self.seen.rank:
                    self.seen.unreadable = f"its report is that of rank {report.rank}"
                elif message.kind == "part":
                    self.seen.part = report
                else:
                    self.seen.report = report
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.seen.unreadable = f"its report cannot be read: {error}"

    def is_sound(self) -> bool:
        self.listen()
        return self.status == 0 and self.seen.report is not None and self.seen.unreadable is None

    def stack(self) -> tuple[str, ...]:
        """Return the frames of the main thread, innermost first; empty if faulthandler wrote none."""
        return stack_of(_text(self._stack), STACK_MARK)

    def end(self) -> RankEnd[Report]:
        self.listen()
        status, seen, missing = self.status, self.seen, "it ended with exit status 0 and left no report"
        printed = ("".join(c for c in line if c.isprintable()) for line in self.child.printed().splitlines())
        output = [short for line in printed if (short := line[:OUTPUT_WIDTH].strip())]
        return msgspec.structs.replace(
            seen,
            status=status,
            process_state=self._state() if status is None else None,
            report=seen.report if self.is_sound() else None,
            unreadable=(seen.unreadable or (None if seen.report else missing)) if status == 0 else None,
            stack=self.stack(),
            output=tuple(output[-OUTPUT_LINES:]),
        )

    def _state(self) -> str | None:
        stat = _text(Path(f"/proc/{self.child.process.pid}/stat"))
        return stat.rpartition(")")[2].split()[0] if stat else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


class _Since:
    """The time since a moment, without what ranks waited for a processor meanwhile. waited: until that moment."""

    def __init__(self, moment: float, waited: float = 0.0) -> None:
        self._moment, self._waited = moment, waited

    def seconds(self, now: float, waited: float) -> float:
        whole = now - self._moment
        return whole - min(waited - self._waited, MOST_WAITING / (1 + MOST_WAITING) * whole)


def _watch(ranks: Sequence[_Rank[Report]], run: RankRun[Report], started: float) -> Reason:
    broken_since: float | None = None
    waiting = Waiting([rank.child.process.pid for rank in ranks])
    lines, begun, moved = [rank.seen.progress for rank in ranks], _Since(started), _Since(started)
    limit_s = run.start_s + run.timeout_s
    while True:
        for rank in ranks:
            rank.listen()
        now = time.monotonic()
        waited = waiting.look(now)
        if lines != (lines := [rank.seen.progress for rank in ranks]):
            moved = _Since(now, waited)
        if limit_s > run.timeout_s and run.has_begun(lines):
            begun, limit_s = _Since(now, waited), run.timeout_s
        running = [rank for rank in ranks if rank.status is None]
        if broken_since is None and not all(rank.is_sound() for rank in ranks if rank not in running):
            broken_since = now
        if broken_since is not None and (not running or now - broken_since > SETTLE_S):
            return "broken"
        if not running:
            return "finished"
        if broken_since is None and begun.seconds(now, waited) > limit_s:
            return "deadline"
        if broken_since is None and moved.seconds(now, waited) > run.stall_s(lines):
            return "stalled"
        time.sleep(POLL_S)


def _wait_for_stacks(ranks: Sequence[_Rank[Report]]) -> None:
    """Request the stack of every rank that still runs, and wait until all are written or STACK_S is over.

    Not of a rank that is not ready, which the signal would kill.
    """
    requested = [rank for rank in ranks if rank.status is None and rank.ready]
    for rank in requested:
        rank.child.process.send_signal(signal.SIGUSR1)
    until = time.monotonic() + STACK_S
    while any(not rank.stack() for rank in requested) and time.monotonic() < until:
        time.sleep(POLL_S)


def _stop(ranks: Sequence[_Rank[Report]]) -> tuple[int, ...]:
    def listen() -> None:
        for rank in ranks:
            if rank.status is None:
                rank.listen()

    left = end([rank.child.group for rank in ranks], ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)), listen)
    for rank in ranks:
        rank.child.close()
    return tuple(rank.seen.rank for rank in ranks if rank.child.group in left)
