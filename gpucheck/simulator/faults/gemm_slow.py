"""A GPU multiplies matrices more slowly than it should, at a healthy clock."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

ALL = 100


def part(percent: int) -> float:
    """The lost part of a rate. Raises ValueError for all of it or more."""
    if not 0 < percent < ALL:
        raise ValueError(f"percent={percent}: choose 1 to 99, the part of the rate that is lost")
    return percent / ALL


def _apply(machine: Machine, gpu: int, percent: int = 15) -> None:
    machine.gpu(gpu).compute["matrix_loss"] = part(percent)


FAULT = Fault("gemm-slow", "a GPU loses part of its matrix rate at the same clock", _apply)
