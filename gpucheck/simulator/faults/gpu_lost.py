"""A GPU fell off the bus: NVML still counts it and answers GPU_IS_LOST (15) to every question about it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

GPU_IS_LOST = 15


def _apply(machine: Machine, gpu: int) -> None:
    machine.gpu(gpu).nvml["error"] = str(GPU_IS_LOST)


FAULT = Fault(name="gpu-lost", summary="a GPU fell off the bus (NVML 15)", apply=_apply, parameters={"gpu": int})
