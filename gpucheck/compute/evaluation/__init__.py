"""From what the devices measured to findings. Pure functions; GPUs of one model on one host are compared."""

from collections.abc import Sequence
from itertools import chain

from gpucheck.compute.evaluation.clocks import clocks
from gpucheck.compute.evaluation.gaps import gaps
from gpucheck.compute.evaluation.groups import counters
from gpucheck.compute.evaluation.rates import doubtful, rates
from gpucheck.compute.evaluation.results import checked, results
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

__all__ = ["CHECKS", "checked", "doubtful", "evaluate"]

# The names of the findings.
CHECKS = ("compute-matrix", "compute-memory", "compute-results", "compute-clocks", "compute-errors")


def evaluate(devices: Sequence[ComputeDevice]) -> tuple[Finding, ...]:
    """Return the findings of all devices: what is missing, wrong results, errors, clocks, rates."""
    return tuple(chain(gaps(devices), results(devices), counters(devices), clocks(devices), rates(devices)))
