"""A program for ranks: ``python -m tests.processes.rank_program FD RANK``. Rank 1 fails as the options say."""

import os
import signal
import sys
import time
from typing import Any

import msgspec

from gpucheck.processes.ranks.rank import RankSpec, Sender, run_rank
from gpucheck.processes.ranks.supervisor import RankRun


class Options(msgspec.Struct, frozen=True):
    """failure: of rank 1, on its second step."""

    failure: str = ""


class Report(msgspec.Struct, frozen=True):
    """world: ranks over all hosts."""

    rank: int
    world: int


def ranks(failure: str = "", timeout_s: float = 600.0, **more: Any) -> RankRun[Report]:
    """Return a run of two of these."""
    chosen: dict[str, Any] = {"processes": 2, "timeout_s": timeout_s, "options": Options(failure)} | more
    return RankRun(name="ranks", program=("tests.processes.rank_program",), report=Report, **chosen)


def work(spec: RankSpec[Options], sender: Sender) -> Report:
    for step in ("first step", "second step"):
        sender.send("at", step)
        if step == "second step" and spec.rank == 1:
            fail(spec.options.failure, sender)
    return Report(spec.rank, spec.processes)


def fail(how: str, sender: Sender) -> None:
    if how == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("about to hang", flush=True)
        time.sleep(600)
    if how == "other":
        sender.send("report", Report(0, 2))
        os._exit(0)


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), Options, work)
