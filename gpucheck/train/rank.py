"""One rank: ``python -m gpucheck.train.rank PROGRAM DIR RANK``, started by ``gpucheck.train.smoke``.

PROGRAM: importable module whose ``run(spec, directory, progress)`` is the training of one rank and returns its report.
"""

import sys
from importlib import import_module

from gpucheck.processes.ranks.rank import run_rank
from gpucheck.processes.ranks.run_directory import RunDirectory
from gpucheck.train import faults
from gpucheck.train.progress import Progress
from gpucheck.train.report import RankReport
from gpucheck.train.spec import RankSpec, SmokeOptions, fault_of


def main(program: str, path: str, number: str) -> None:
    """Run the program and leave its report or its error in the directory."""

    def train(spec: RankSpec, directory: RunDirectory) -> RankReport:
        on_enter = faults.hook(fault_of(spec.options, spec.rank), directory.report(spec.rank))
        progress = Progress(directory.progress(spec.rank), on_enter, trace=spec.options.trace)
        report: RankReport = import_module(program).run(spec, directory, progress)
        progress.enter("done")
        return report

    run_rank(path, number, SmokeOptions, train)


if __name__ == "__main__":
    main(*sys.argv[1:])
