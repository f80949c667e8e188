"""A GPU fell off the bus: NVML still counts it and answers GPU_IS_LOST (15) to every question about it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.xids import xid_line

GPU_IS_LOST = 15


def _apply(machine: Machine, gpu: int) -> None:
    """Its configuration space reads as ones and its link as unknown, as of any device that no longer answers."""
    lost = machine.gpu(gpu)
    lost.nvml["error"] = str(GPU_IS_LOST)
    lost.function.lost = True
    lost.open_error = "EIO"
    machine.log(xid_line(lost.function.bus_id, 79), age_s=600)
    machine.log(f"NVRM: GPU {lost.function.bus_id}: GPU has fallen off the bus.", age_s=600)


FAULT = Fault("gpu-lost", "a GPU fell off the bus (NVML 15)", _apply)
