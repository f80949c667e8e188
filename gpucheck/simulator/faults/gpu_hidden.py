"""A device cgroup hides a GPU from this process, as in a step of Slurm that was given others: NVML omits it too."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int) -> None:
    machine.require_driver()
    machine.gpu(gpu).visible = False
    machine.gpu(gpu).open_error = "EPERM"


FAULT = Fault("gpu-hidden", "a device cgroup hides a GPU from this process", _apply)
