"""A rank that is killed in the middle of an all-reduce, as the kernel does when memory runs out."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.training import break_training, one_of_the_first_steps


def _apply(machine: Machine, rank: int, step: int) -> None:
    break_training(machine, "rank-dies", rank, step=one_of_the_first_steps(step))


FAULT = Fault(
    name="rank-dies",
    summary="a training rank is killed in the middle of an all-reduce",
    apply=_apply,
    parameters={"rank": 1, "step": 3},
)
