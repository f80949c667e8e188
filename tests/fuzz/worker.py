"""One process that runs inputs until the plan is done. It may die: the runner sees it and starts another."""

import faulthandler
import gc
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz import limits, product
from tests.fuzz.cases import made
from tests.fuzz.minimise import minimised
from tests.fuzz.outcome import LARGE, SLOW, Failure, outcome, start_counting_memory
from tests.fuzz.target import Target

# A turn of one target: long enough that the order costs nothing, short enough that all have their share of a minute.
TURN_S = 0.2
RESTART = 75
"""Exit status of a worker whose memory grew: a fresh one goes on, for the peak never falls."""


class Plan(NamedTuple):
    """What every worker knows. cases: of each target; None: until the time is over. jobs: workers that share them."""

    targets: Sequence[Target]
    seed: int
    seconds: float
    cases: int | None
    jobs: int
    output: Path
    known: frozenset[tuple[str, str, str]] = frozenset()


class Shared(NamedTuple):
    """Memory that outlives a worker, per target: the next case, and nanoseconds spent. current: target and case now."""

    next: Any
    spent: Any
    current: Any


def work(plan: Plan, shared: Shared, report: Connection, ends: float) -> None:
    """Take turns through the targets. ends: on the monotonic clock, for a plan of time."""
    crash = (plan.output / f"crash-{os.getpid()}.txt").open("w")
    faulthandler.enable(crash)
    limits.bound_address_space()
    product.prepare()
    gc.freeze()  # seeds are not searched for garbage again and again in the time of an input
    start_counting_memory()
    found = set(plan.known)
    left, runner = list(range(len(plan.targets))), os.getppid()
    while left and os.getppid() == runner and (plan.cases is not None or time.monotonic() < ends):
        for index in list(left):
            if not _turn(plan, shared, index, report, found):
                left.remove(index)
            if plan.cases is None and time.monotonic() >= ends:
                break
    crash.close()
    Path(crash.name).unlink()


def _turn(plan: Plan, shared: Shared, index: int, report: Connection, found: set[tuple[str, str, str]]) -> bool:
    """Run cases of one target. False: it has had all of its cases."""
    target, until = plan.targets[index], time.monotonic() + TURN_S
    while time.monotonic() < until:
        case = shared.next[index]
        if plan.cases is not None and case >= plan.cases:
            return False
        shared.current[:] = (index, case)
        shared.next[index] = case + plan.jobs
        data = made(target, plan.seed, case)
        started = time.process_time_ns()
        failure = outcome(target, data, found)
        shared.spent[index] += time.process_time_ns() - started
        if failure is not None and failure.key not in found:
            found.add(failure.key)
            report.send((failure, case, _shorter(target, data, failure)))
        if failure is not None and failure.kind == LARGE:
            os._exit(RESTART)
    return True


def _shorter(target: Target, data: bytes, failure: Failure) -> bytes:
    """Memory and time are not worth the many runs."""
    if failure.kind in (SLOW, LARGE) or target.format == "json.gz":
        return data

    def fails(shorter: bytes) -> bool:
        again = outcome(target, shorter)
        return again is not None and again.key == failure.key

    return minimised(data, fails)
