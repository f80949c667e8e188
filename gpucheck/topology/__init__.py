"""Classify how GPUs are connected and compute the expected bandwidth. Pure functions of host data."""

from gpucheck.topology.advice import with_advice
from gpucheck.topology.build import build
from gpucheck.topology.classify import classify
from gpucheck.topology.cpu import Cpu, identify
from gpucheck.topology.expected import Hop, expected, nvlink_expected
from gpucheck.topology.named import with_expectations
from gpucheck.topology.nvlink import NvLinks, joint
from gpucheck.topology.sketch import with_sketch

__all__ = [
    "Cpu",
    "Hop",
    "NvLinks",
    "build",
    "classify",
    "expected",
    "identify",
    "joint",
    "nvlink_expected",
    "with_advice",
    "with_expectations",
    "with_sketch",
]
