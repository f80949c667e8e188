"""Persistence mode is off: with the last client the driver lets go of the GPU, and the next one waits for it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: str = "all") -> None:
    for one in machine.chosen(gpu):
        one.answer({"persistence": 0})


FAULT = Fault("persistence-off", "persistence mode is off", _apply)
