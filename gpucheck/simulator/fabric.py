"""The NVSwitch fabric of a machine when Fabric Manager does not hold it up."""

from gpucheck.simulator.machine import Machine

UNIT = "nvidia-fabricmanager"


def bring_down(machine: Machine) -> None:
    """No GPU is registered, and no path leads over the switches. Raises ValueError on a machine without the service."""
    if UNIT not in machine.services:
        raise ValueError(f"profile {machine.profile.name} needs no fabric manager, or its driver is not loaded")
    for gpu in machine.gpus:
        gpu.fabric_state = "in-progress"
        gpu.fabric_up = False
