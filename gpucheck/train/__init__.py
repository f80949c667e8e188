"""Run short training jobs on two devices, each rank in its own process, and evaluate the results."""

from gpucheck.train.judge import judge
from gpucheck.train.outcome import Checkpoint, SmokeFailure, SmokeResult
from gpucheck.train.smoke import is_settled, real_gpus, run_smoke, whole_gpus
from gpucheck.train.spec import Limits, SmokeOptions

__all__ = [
    "Checkpoint",
    "Limits",
    "SmokeFailure",
    "SmokeOptions",
    "SmokeResult",
    "is_settled",
    "judge",
    "real_gpus",
    "run_smoke",
    "whole_gpus",
]
