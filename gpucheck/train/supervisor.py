"""Starts the ranks, watches them from outside, and ends them: nothing that a rank does outlasts the deadline."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from gpucheck.processes.group import end
from gpucheck.processes.signals import undisturbed
from gpucheck.processes.temporary import private_environment, temporary_folder
from gpucheck.train.outcome import RankReport
from gpucheck.train.process import RankEnd, RankProcess, wait_for_stacks
from gpucheck.train.spec import RankSpec, SmokeOptions
from gpucheck.train.workplace import Workplace

POLL_S = 0.02
SETTLE_S = 1.0  # one rank's end makes the others raise: wait for what they have to say, then look for who was first
STACK_S = 1.0
TERM_S = 1.0
KILL_S = 5.0  # a process in an uninterruptible call outlives even SIGKILL; it is reported, not waited for


class Ending(NamedTuple):
    """How a run was over. reason: ``broken`` if a rank ended badly. ended: time.monotonic(); seconds: since the start.

    unkillable: ranks that SIGKILL did not end. shared: reports of ranks on other hosts.
    """

    reason: Literal["finished", "broken", "stalled", "deadline"]
    ranks: tuple[RankEnd, ...]
    seconds: float
    ended: float
    unkillable: tuple[int, ...] = ()
    shared: tuple[RankReport, ...] = ()


def supervise(
    program: str, options: SmokeOptions, environment: Mapping[str, str], *, processes: int | None = None
) -> Ending:
    """Run this host's ranks of a program to their end, or to the deadline.

    processes: over all hosts, by default one a device.

    When this returns or raises, no rank is left running (but for the unkillable) and no file. Raises OSError when
    there is no room for the private folder or no process can be started.
    """
    with temporary_folder("smoke") as folder:
        place = Workplace(folder)
        environment = {**environment, **private_environment(folder, environment)}
        place.link_package()
        ranks: list[RankProcess] = []
        started = time.monotonic()
        try:
            for spec in _specs(program, options, processes or options.world_size):
                place.spec(spec.rank).write_bytes(msgspec.json.encode(spec))
                ranks.append(RankProcess(spec.rank, place, environment))
            reason = _watch(ranks, options, started)
            ended = time.monotonic()
            if reason != "finished":
                wait_for_stacks(ranks, STACK_S)
            ends = tuple(rank.end() for rank in ranks)
            shared = tuple(place.shared_reports())
        finally:
            with undisturbed():
                unkillable = _stop(ranks)
        return Ending(reason, ends, ended - started, ended, unkillable, shared)


def _specs(program: str, options: SmokeOptions, processes: int) -> Iterator[RankSpec]:
    """What each rank of this host is told."""
    nodes = options.nodes
    here = processes // (nodes.count if nodes else 1)
    for local in range(here):
        yield RankSpec(
            rank=local + (nodes.rank * here if nodes else 0),
            local_rank=local,
            processes=processes,
            program=program,
            supervisor_pid=os.getpid(),
            options=options,
        )


def _watch(
    ranks: list[RankProcess], options: SmokeOptions, started: float
) -> Literal["finished", "broken", "stalled", "deadline"]:
    broken_since: float | None = None
    while True:
        for rank in ranks:
            rank.drain()
        now = time.monotonic()
        running = [rank for rank in ranks if rank.status() is None]
        if broken_since is None and not all(rank.sound() for rank in ranks if rank not in running):
            broken_since = now
        if broken_since is not None and (not running or now - broken_since > SETTLE_S):
            return "broken"
        if not running:
            return "finished"
        if broken_since is None and now - started > options.timeout_s:
            return "deadline"
        if broken_since is None and _stalled(ranks, options.stall_s, now):
            return "stalled"
        time.sleep(POLL_S)


def _stalled(ranks: list[RankProcess], stall_s: float, now: float) -> bool:
    """Every rank trains, or has trained, and none has entered a phase for that long."""
    positions = [rank.position() for rank in ranks]
    return min(p.order() for p in positions)[0] > 0 and now - max(p.entered for p in positions) > stall_s


def _stop(ranks: list[RankProcess]) -> tuple[int, ...]:
    """End every rank and all it started. Returns the ranks that are still there."""

    def drain() -> None:
        for rank in ranks:
            if rank.status() is None:
                rank.drain()

    left = end([rank.group for rank in ranks], ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)), drain)
    return tuple(rank.rank for rank in ranks if rank.group in left)
