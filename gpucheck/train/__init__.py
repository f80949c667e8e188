"""The training room: a short real training run on two ranks, each a process of its own, and what it proves."""

from gpucheck.train.judge import judge
from gpucheck.train.outcome import Checkpoint, SmokeFailure, SmokeResult
from gpucheck.train.smoke import real_gpus, run_ddp, run_smoke
from gpucheck.train.spec import Limits, SmokeOptions

__all__ = [
    "Checkpoint",
    "Limits",
    "SmokeFailure",
    "SmokeOptions",
    "SmokeResult",
    "judge",
    "real_gpus",
    "run_ddp",
    "run_smoke",
]
