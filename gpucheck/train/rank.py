"""One rank, a process of its own: ``python -m gpucheck.train.rank FOLDER RANK``, started by the supervisor.

Exit status 0 with a report, 1 with an error on record; anything else is a finding.
"""

import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import msgspec

from gpucheck.processes.lifeline import end_with_parent, show_stacks, write_whole
from gpucheck.train import faults
from gpucheck.train.outcome import RankReport
from gpucheck.train.progress import Progress
from gpucheck.train.spec import RankSpec, fault_of
from gpucheck.train.workplace import RankError, Workplace


def _describe(error: BaseException) -> RankError:
    frames = traceback.extract_tb(error.__traceback__)
    return RankError(
        type=type(error).__name__,
        message=str(error),
        missing=error.name if isinstance(error, ModuleNotFoundError) else None,
        frames=tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)),
        raised=time.monotonic(),
    )


def main(folder: str, rank: str) -> int:
    """Run the program that the rank's spec names, and leave its report or its error in the folder."""
    place, number = Workplace(Path(folder)), int(rank)
    spec = msgspec.json.decode(place.spec(number).read_bytes(), type=RankSpec)
    end_with_parent(spec.supervisor_pid)
    with place.stack(number).open("w") as stack:
        # Before the first phase is on record: from then on the supervisor may ask for a stack.
        show_stacks(stack)
        on_enter = faults.hook(fault_of(spec.options, number), place.report(number))
        progress = Progress(place.progress(number), on_enter, trace=spec.options.trace)
        try:
            report: RankReport = import_module(spec.program).run(spec, place, progress)
            write_whole(place.report(number), msgspec.json.encode(report))
        except Exception as error:
            write_whole(place.error(number), msgspec.json.encode(_describe(error)))
            status = 1
        else:
            progress.enter("done")
            status = 0
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: tearing down a process group whose peers are gone can block for minutes, and the answer is out.
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
