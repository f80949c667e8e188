"""The memory of a GPU is slower than it should be."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.gemm_slow import part
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, percent: int = 15) -> None:
    machine.gpu(gpu).compute["memory_loss"] = part(percent)


FAULT = Fault("memory-slow", "a GPU loses part of its memory bandwidth", _apply)
