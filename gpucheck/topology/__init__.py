"""Classify how GPUs are connected and compute the expected bandwidth. Pure functions of host data."""

from gpucheck.topology.advice import with_advice
from gpucheck.topology.build import CPUINFO, build, cpu_of, of, with_expectations
from gpucheck.topology.expected import Hop, expected, nvlink_expected
from gpucheck.topology.pcie import classify, cpu_vendor
from gpucheck.topology.wiring import NvLinks, infer_wiring
