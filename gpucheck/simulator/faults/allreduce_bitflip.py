"""One bit of one rank's averaged gradients arrives flipped: far below any tolerance, and still damage."""

from gpucheck.simulator.faults import Fault, break_training, one_of_the_first_steps
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, rank: int = 1, step: int = 6) -> None:
    break_training(machine, "allreduce-bitflip", rank, step=one_of_the_first_steps(step))


FAULT = Fault("allreduce-bitflip", "one bit arrives flipped in one rank's all-reduce", _apply)
