"""MIG mode was switched, and takes effect with the next reset of the GPU."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int) -> None:
    switched = machine.gpu(gpu)
    if not switched.model.mig:
        raise ValueError(f"GPU {gpu} ({switched.model.name}) has no MIG")
    switched.answer({"mig.pending": int(not switched.mig)})


FAULT = Fault("mig-pending", "MIG mode was switched and awaits a reset", _apply)
