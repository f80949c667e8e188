"""Run short training jobs on two devices, each rank in its own process, and evaluate the results."""

from gpucheck.model.smoke import Checkpoint, Limits, SmokeFailure, SmokeResult
from gpucheck.train.evaluation import evaluate
from gpucheck.train.smoke import is_settled, real_gpus, run_smoke, whole_gpus
from gpucheck.train.spec import SmokeOptions

__all__ = [
    "Checkpoint",
    "Limits",
    "SmokeFailure",
    "SmokeOptions",
    "SmokeResult",
    "evaluate",
    "is_settled",
    "real_gpus",
    "run_smoke",
    "whole_gpus",
]
