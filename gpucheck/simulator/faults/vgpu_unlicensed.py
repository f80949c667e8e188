"""Virtual GPUs without a license."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

VGPU = 2  # nvmlGpuVirtualizationMode_t


def _apply(machine: Machine, licensed: int = 0) -> None:
    """licensed: 1 for healthy ones."""
    for gpu in machine.gpus:
        gpu.answer({"virtualization": VGPU, "license.supported": 1, "license.state": licensed})


FAULT = Fault("vgpu-unlicensed", "the GPUs are virtual ones without a license", _apply)
