"""Classify how GPUs are connected and compute the expected bandwidth. Pure functions of host data."""

from gpucheck.topology.advice import with_advice
from gpucheck.topology.build import CPUINFO, build, cpu_of, of, with_expectations
from gpucheck.topology.expected import Hop, expected, nvlink_expected
from gpucheck.topology.nvlink import NvLinks
from gpucheck.topology.pcie.classify import classify
from gpucheck.topology.pcie.cpu import Cpu, identify
from gpucheck.topology.wiring import infer_wiring

__all__ = [
    "CPUINFO",
    "Cpu",
    "Hop",
    "NvLinks",
    "build",
    "classify",
    "cpu_of",
    "expected",
    "identify",
    "infer_wiring",
    "nvlink_expected",
    "of",
    "with_advice",
    "with_expectations",
]
