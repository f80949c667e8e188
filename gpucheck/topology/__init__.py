"""How GPUs are connected and what that should be worth: pure functions of what the host answered."""

from gpucheck.topology.advice import with_advice
from gpucheck.topology.build import build, cpu_of, of
from gpucheck.topology.classify import classify
from gpucheck.topology.cpu import Cpu, identify
from gpucheck.topology.expected import Hop, expected, nvlink_expected
from gpucheck.topology.named import with_expectations
from gpucheck.topology.nvlink import NvLinks
from gpucheck.topology.sketch import with_sketch

__all__ = [
    "Cpu",
    "Hop",
    "NvLinks",
    "build",
    "classify",
    "cpu_of",
    "expected",
    "identify",
    "nvlink_expected",
    "of",
    "with_advice",
    "with_expectations",
    "with_sketch",
]
