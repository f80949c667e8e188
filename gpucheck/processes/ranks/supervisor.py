"""Start the ranks of this host, watch them from outside, and end them: no rank outlasts the deadline."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal

import msgspec

from gpucheck.processes.contention import waited_s
from gpucheck.processes.group import end
from gpucheck.processes.ranks.nccl_log import Taken, logging_environment, read
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.process import RankEnd, RankProcess, Report
from gpucheck.processes.ranks.run_directory import RankSpec, RunDirectory
from gpucheck.processes.signals import TerminatedError, undisturbed
from gpucheck.processes.temporary import private_environment

POLL_S = 0.02
SETTLE_S = 1.0  # the end of one rank makes the others raise: wait for their errors, then find which was first
STACK_S = 1.0
TERM_S = 1.0
# Ranks that hang spin, and so wait for a processor as well: they are stuck after so many times the limit.
MOST_WAITING = 3.0
KILL_S = 5.0  # a process in an uninterruptible call outlives even SIGKILL; it is reported, not waited for
Reason = Literal["finished", "broken", "stalled", "deadline", "interrupted"]


class Ending(msgspec.Struct, Generic[Report], frozen=True):
    """How a run ended. reason: ``broken`` if a rank ended without a valid report.

    seconds: since the start. ended: time.monotonic(). unkillable: ranks that SIGKILL did not end.
    shared: reports of ranks on other hosts. taken: from NCCL's log, empty if no rank of this host used NCCL.
    signal: what interrupted it.
    """

    reason: Reason
    ranks: tuple[RankEnd[Report], ...]
    seconds: float
    ended: float
    unkillable: tuple[int, ...] = ()
    shared: tuple[Report, ...] = ()
    taken: Taken = Taken()
    signal: Any = None  # an exception


def supervise(
    directory: RunDirectory,
    program: Sequence[str],
    specs: Sequence[RankSpec[msgspec.Struct]],
    report: type[Report],
    environment: Mapping[str, str],
    timeout_s: float,
    is_stalled: Callable[[Sequence[bytes], float], bool] | None = None,
    *,
    keep: bool = False,
) -> Ending[Report]:
    """Run the ranks of this host to their end, or to the deadline.

    program: module and arguments; each rank gets the path of the directory and its number after them, and calls
    ``run_rank``. specs: one a rank, from ``rank_specs``. report: type of the ranks' reports. timeout_s: does not count
    the time in which ranks waited for a processor, up to MOST_WAITING times as much: on a host with many more running
    processes than processors the limit would be a statement about the host. is_stalled: whether ranks with these
    progress lines no longer move, at this time.monotonic(). keep: a signal is an ending, and not raised.

    When this returns or raises, no rank is left running, except the unkillable. Raises OSError if no process can be
    started.
    """
    own = logging_environment(directory.path) | private_environment(directory.path, environment)
    environment = {**environment, **own}
    ranks: list[RankProcess[Report]] = []
    started = time.monotonic()
    try:
        for spec in specs:
            directory.spec(spec.rank).write_bytes(msgspec.json.encode(spec))
            ranks.append(RankProcess(spec.rank, program, directory, environment, report))
        reason: Reason = "interrupted"
        stopped: BaseException | None = None
        try:
            reason = _watch(ranks, started, timeout_s, is_stalled)
        except (KeyboardInterrupt, TerminatedError) as signal:
            if not keep:
                raise
            stopped = signal
        ended = time.monotonic()
        if reason not in ("finished", "interrupted"):
            _wait_for_stacks(ranks)
        ends = tuple(rank.end() for rank in ranks)
        shared = tuple(msgspec.json.decode(content, type=report) for content in directory.shared_reports())
    finally:
        with undisturbed():
            unkillable = _stop(ranks)
    return Ending(reason, ends, ended - started, ended, unkillable, shared, read(directory.path), stopped)


def rank_specs(processes: int, nodes: Nodes | None, options: msgspec.Struct) -> Iterator[RankSpec[msgspec.Struct]]:
    """Yield the spec of each rank of this host. processes: ranks over all hosts, the same number on each."""
    here = processes // (nodes.count if nodes else 1)
    for local in range(here):
        yield RankSpec(
            rank=local + (nodes.rank * here if nodes else 0),
            local_rank=local,
            processes=processes,
            supervisor_pid=os.getpid(),
            options=options,
        )


def _watch(
    ranks: Sequence[RankProcess[Report]],
    started: float,
    timeout_s: float,
    is_stalled: Callable[[Sequence[bytes], float], bool] | None,
) -> Reason:
    broken_since: float | None = None
    while True:
        for rank in ranks:
            rank.drain()
        now = time.monotonic()
        running = [rank for rank in ranks if rank.status() is None]
        if broken_since is None and not all(rank.is_sound() for rank in ranks if rank not in running):
            broken_since = now
        if broken_since is not None and (not running or now - broken_since > SETTLE_S):
            return "broken"
        if not running:
            return "finished"
        late_s = now - started - timeout_s
        if broken_since is None and late_s > 0 and late_s > _waited_s(ranks, MOST_WAITING * timeout_s):
            return "deadline"
        if broken_since is None and is_stalled and is_stalled([rank.progress() for rank in ranks], now):
            return "stalled"
        time.sleep(POLL_S)


def _waited_s(ranks: Sequence[RankProcess[Report]], most_s: float) -> float:
    """How long the rank that waited longest for a processor has waited since its start."""
    return min(most_s, max((waited_s(rank.pid) for rank in ranks), default=0.0))


def _wait_for_stacks(ranks: Sequence[RankProcess[Report]]) -> None:
    """Request the stack of every rank that still runs, and wait until all are written or STACK_S is over."""
    requested = [rank for rank in ranks if rank.request_stack()]
    until = time.monotonic() + STACK_S
    while any(not rank.stack() for rank in requested) and time.monotonic() < until:
        time.sleep(POLL_S)


def _stop(ranks: Sequence[RankProcess[Report]]) -> tuple[int, ...]:
    """End every rank and all that it started. Return the ranks that are still running."""

    def drain() -> None:
        for rank in ranks:
            if rank.status() is None:
                rank.drain()

    left = end([rank.group for rank in ranks], ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)), drain)
    return tuple(rank.rank for rank in ranks if rank.group in left)
