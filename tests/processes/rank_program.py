"""A program for ranks: ``python -m tests.processes.rank_program DIR RANK``. Rank 1 fails as the options say."""

import os
import signal
import sys
import time

import msgspec

from gpucheck.processes.ranks.rank import run_rank
from gpucheck.processes.ranks.run_directory import ProgressFile, RankSpec, RunDirectory


class Options(msgspec.Struct, frozen=True):
    """failure: of rank 1, on its second step."""

    failure: str = ""


class Report(msgspec.Struct, frozen=True):
    """world: ranks over all hosts."""

    rank: int
    world: int


def work(spec: RankSpec[Options], directory: RunDirectory) -> Report:
    progress = ProgressFile(directory.progress(spec.rank))
    for step in (b"first step", b"second step"):
        progress.write(step)
        if step == b"second step" and spec.rank == 1:
            fail(spec.options.failure, directory)
    return Report(spec.rank, spec.processes)


def fail(how: str, directory: RunDirectory) -> None:
    if how == "raise":
        raise ValueError("no such thing")
    if how == "missing":
        import gpucheck_no_such_package  # type: ignore[import-not-found] # noqa: F401
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("about to hang", flush=True)
        time.sleep(600)
    if how == "invalid":
        directory.report(1).write_bytes(b"\xff\xfe")
        os._exit(0)
    if how == "other":
        directory.report(1).write_bytes(msgspec.json.encode(Report(0, 2)))
        os._exit(0)


if __name__ == "__main__":
    run_rank(sys.argv[1], sys.argv[2], Options, work, lambda error: type(error).__name__.lower())
