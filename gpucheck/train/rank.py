"""One rank: ``python -m gpucheck.train.rank FD PROGRAM RANK``, started by ``gpucheck.train.smoke``.

PROGRAM: ``module:function``, which gets the spec and the progress, trains one rank and returns its report.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

from gpucheck.processes.ranks.rank import Sender, run_rank
from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec, SmokeOptions, TrainingFault, fault_of


def main(descriptor: int, program: str) -> None:
    """Run the program and send its report or its error."""

    def train(spec: RankSpec, sender: Sender) -> RankReport:
        fault, instances = fault_of(spec.options, spec.rank), spec.options.mig_uuids
        if instances:
            os.environ["CUDA_VISIBLE_DEVICES"] = instances[spec.local_rank % len(instances)]
        progress = Progress(sender, partial(_act, fault) if fault else None)
        report = function_of(program)(spec, progress)
        progress.enter("done")
        return report

    run_rank(descriptor, SmokeOptions, train)


def function_of(program: str) -> Callable[[RankSpec, Progress], RankReport]:
    """Return the function that ``module:function`` names."""
    module, _, name = program.partition(":")
    function: Callable[[RankSpec, Progress], RankReport] = getattr(import_module(module), name)
    return function


def _act(fault: TrainingFault, phase: str, step: int | None) -> None:
    """Fail at a known place, for tests and simulated machines; ``Averaging`` has the faults of the communication."""
    if phase != fault.phase or fault.step not in (None, step):
        return
    if fault.kind == "hang":
        time.sleep(3600)
    elif fault.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
