"""One rank: ``python -m gpucheck.train.rank PROGRAM DIR RANK``, started by ``gpucheck.train.smoke``.

PROGRAM: importable module whose ``run(spec, directory, progress)`` is the training of one rank and returns its report.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from gpucheck.processes.ranks.rank import run_rank
from gpucheck.processes.ranks.run_directory import RunDirectory
from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec, SmokeOptions, TrainingFault, fault_of

NOISE_BYTES = 4_000_000


def main(program: str, path: str, number: str) -> None:
    """Run the program and leave its report or its error in the directory."""

    def train(spec: RankSpec, directory: RunDirectory) -> RankReport:
        on_enter = _hook(fault_of(spec.options, spec.rank), directory.report(spec.rank))
        if spec.options.mig_uuids:
            os.environ["CUDA_VISIBLE_DEVICES"] = spec.options.mig_uuids[spec.local_rank % len(spec.options.mig_uuids)]
        progress = Progress(directory.progress(spec.rank), on_enter)
        report: RankReport = import_module(program).run(spec, directory, progress)
        progress.enter("done")
        return report

    run_rank(path, number, SmokeOptions, train)


def _hook(fault: TrainingFault | None, result: Path) -> Callable[[str, int | None], None] | None:
    """The ``on_enter`` of the progress of a rank that is to have this fault, if any: it acts at a known place.

    For tests of the smoke test, and for simulated machines. Faults of the communication are in ``torch.averaging``.
    """
    if fault is None:
        return None

    def trip(phase: str, step: int | None) -> None:
        if phase == fault.phase and (fault.step is None or step == fault.step):
            _act(fault, result)

    return trip


def _act(fault: TrainingFault, result: Path) -> None:
    if fault.kind == "hang":
        time.sleep(3600)
    elif fault.kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault.kind == "raise":
        raise ArithmeticError("injected failure")
    elif fault.kind == "garbage":
        result.write_bytes(os.urandom(512))
        os._exit(0)
    elif fault.kind == "out-of-memory":
        # As a cgroup or ulimit does to a rank that needs more than it may have.
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
        bytearray(1 << 30)
    elif fault.kind == "noise":
        sys.stdout.buffer.write(b"\xff\x00noise\n" * (NOISE_BYTES // 8))
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
