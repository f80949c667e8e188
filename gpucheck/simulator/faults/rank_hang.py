"""A rank that never enters the collective in which the others wait."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.training import break_training, one_of_the_first_steps


def _apply(machine: Machine, rank: int, step: int) -> None:
    break_training(machine, "rank-hang", rank, step=one_of_the_first_steps(step))


FAULT = Fault(
    name="rank-hang",
    summary="a training rank stops answering before an all-reduce",
    apply=_apply,
    parameters={"rank": 1, "step": 3},
)
