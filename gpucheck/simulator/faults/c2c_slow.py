"""The NVLink-C2C between a GPU and its Grace CPU is slower than it should be, and nothing else shows it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import loss
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, percent: int = 70) -> None:
    if not machine.gpu(gpu).model.coherent:
        raise ValueError(f"gpu={gpu}: a {machine.gpu(gpu).model.name} has no NVLink-C2C")
    machine.surround("measurement", fault="c2c-slow", a=gpu, **loss(percent))


FAULT = Fault("c2c-slow", "copies between one GPU and its Grace CPU lose part of their bandwidth", _apply)
