"""A rank that is killed in the middle of an all-reduce, as the kernel does when memory runs out."""

from gpucheck.simulator.faults import Fault, break_training, one_of_the_first_steps
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, rank: int = 1, step: int = 3) -> None:
    break_training(machine, "rank-dies", rank, step=one_of_the_first_steps(step))


FAULT = Fault("rank-dies", "a training rank is killed in the middle of an all-reduce", _apply)
