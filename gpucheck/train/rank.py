"""One rank: ``python -m gpucheck.train.rank FD PROGRAM RANK``, started by ``gpucheck.train.smoke``.

PROGRAM: importable module whose ``run(spec, progress)`` is the training of one rank and returns its report.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module

from gpucheck.processes.ranks.rank import Sender, run_rank
from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec, SmokeOptions, TrainingFault, fault_of, kind_of


def main(descriptor: int, program: str) -> None:
    """Run the program and send its report or its error."""

    def train(spec: RankSpec, sender: Sender) -> RankReport:
        on_enter = _hook(fault_of(spec.options, spec.rank))
        if spec.options.mig_uuids:
            os.environ["CUDA_VISIBLE_DEVICES"] = spec.options.mig_uuids[spec.local_rank % len(spec.options.mig_uuids)]
        progress = Progress(sender, on_enter)
        report: RankReport = import_module(program).run(spec, progress)
        progress.enter("done")
        return report

    run_rank(descriptor, SmokeOptions, train, kind_of)


def _hook(fault: TrainingFault | None) -> Callable[[str, int | None], None] | None:
    """The ``on_enter`` of the progress of a rank that is to have this fault, if any: it acts at a known place.

    For tests of the smoke test, and for simulated machines. Faults of the communication are in ``torch.averaging``.
    """
    if fault is None:
        return None

    def trip(phase: str, step: int | None) -> None:
        if phase == fault.phase and (fault.step is None or step == fault.step):
            _act(fault)

    return trip


def _act(fault: TrainingFault) -> None:
    if fault.kind == "hang":
        time.sleep(3600)
    elif fault.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
