"""A rank that never enters the collective in which the others wait."""

from gpucheck.simulator.faults import Fault, break_training, one_of_the_first_steps
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, rank: int = 1, step: int = 3) -> None:
    break_training(machine, "rank-hang", rank, step=one_of_the_first_steps(step))


FAULT = Fault("rank-hang", "a training rank stops answering before an all-reduce", _apply)
