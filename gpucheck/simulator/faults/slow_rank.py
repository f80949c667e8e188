"""A rank that computes more slowly than the others, which then all wait for it."""

from gpucheck.simulator.faults import Fault, break_training
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, rank: int = 1, factor: int = 2) -> None:
    if factor < 2:
        raise ValueError(f"factor={factor}: a slow rank takes 2 times as long or more")
    break_training(machine, "slow-rank", rank, factor=factor)


FAULT = Fault("slow-rank", "a training rank computes several times as long as the others", _apply)
