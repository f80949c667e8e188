"""The kernel's own nouveau driver holds the GPUs, so that nvidia could not load."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    if not machine.gpus:
        raise ValueError(f"profile {machine.profile.name} has no GPU for nouveau to hold")
    machine.unload_driver(nouveau_loaded=True)


FAULT = Fault("nouveau", "nouveau is loaded and holds the GPUs instead of nvidia (NVML 9)", _apply)
