"""Short training runs on two devices, each rank in a process of its own, and what they prove."""

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
