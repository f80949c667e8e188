"""The inside of one rank: read its spec, do the work, leave a report or an error in the run directory."""

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from gpucheck.processes.atomic import write_atomic
from gpucheck.processes.lifeline import end_with_parent, show_stacks
from gpucheck.processes.ranks.run_directory import Options, RankError, RankSpec, RunDirectory

MESSAGE_CHARACTERS = 4000
# The file whose frame marks the main thread among the stacks of a rank.
STACK_MARK = "gpucheck/processes/ranks/rank.py"


def run_rank(
    path: str,
    number: str,
    options: type[Options],
    work: Callable[[RankSpec[Options], RunDirectory], msgspec.Struct],
    classify: Callable[[Exception], str] | None = None,
) -> NoReturn:
    """Do the work of one rank and exit: 0 with a report, 1 with a RankError; any other status is a finding.

    path, number: the last two arguments that the supervisor starts the program with. classify: gives the kind of an
    error.
    """
    directory, rank = RunDirectory(Path(path)), int(number)
    spec = msgspec.json.decode(directory.spec(rank).read_bytes(), type=RankSpec[options])  # type: ignore[valid-type]
    end_with_parent(spec.supervisor_pid)
    with directory.stack(rank).open("w") as stack:
        show_stacks(stack)
        write_atomic(directory.pid(rank), str(os.getpid()).encode(), durable=False)
        try:
            report = work(spec, directory)
            write_atomic(directory.report(rank), msgspec.json.encode(report), durable=False)
            status = 0
        except Exception as error:
            described = _described(error, classify(error) if classify else "")
            write_atomic(directory.error(rank), msgspec.json.encode(described), durable=False)
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: tearing down a process group whose peers are gone can block for minutes, and the result is out.
        os._exit(status)


def _described(error: Exception, kind: str) -> RankError:
    frames = traceback.extract_tb(error.__traceback__)
    return RankError(
        type=type(error).__name__,
        message=str(error)[:MESSAGE_CHARACTERS],
        missing=error.name if isinstance(error, ModuleNotFoundError) else None,
        frames=tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)),
        raised=time.monotonic(),
        kind=kind,
    )
