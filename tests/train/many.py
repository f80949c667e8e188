"""Many trainings in the same rank processes: torch is imported once for all of them. Each leaves a report of its own.

The options come as JSON in the variable MANY, the reports go to the folder that MANY_REPORTS names.
"""

import gc
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.rank import function_of
from gpucheck.train.spec import RankSpec, SmokeOptions
from gpucheck.train.strategies import all_strategies
from tests.train.broken import broken


def run(spec: RankSpec, progress: Progress) -> RankReport:
    import torch.distributed as dist

    report: RankReport | None = None
    for name, options in msgspec.json.decode(os.environ["MANY"], type=dict[str, SmokeOptions]).items():
        gc.freeze()  # each training collects twice: not all of torch, again and again
        folder = Path(spec.folder, f"run-{name}")
        folder.mkdir(exist_ok=True)
        train = function_of(all_strategies()[options.framework, options.strategy].program)
        with broken(name, spec.rank):
            report = train(replace(spec, options=options, folder=str(folder)), Progress(progress.sender))
        if dist.is_initialized():
            dist.destroy_process_group()
        Path(os.environ["MANY_REPORTS"], f"{name}-{spec.rank}.json").write_bytes(msgspec.json.encode(report))
    assert report is not None
    return report
