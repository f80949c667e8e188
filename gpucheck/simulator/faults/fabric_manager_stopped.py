"""Fabric Manager does not run: no GPU gets registered with the NVSwitch fabric."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

UNIT = "nvidia-fabricmanager"


def bring_down(machine: Machine, state: str) -> None:
    """The service is in this state: no GPU is registered, and no path leads over the switches.

    Raises ValueError on a machine without the service.
    """
    if UNIT not in machine.services:
        raise ValueError(f"profile {machine.profile.name} needs no fabric manager, or its driver is not loaded")
    machine.services[UNIT] = state
    for gpu in machine.gpus:
        gpu.fabric_state = "in-progress"
        gpu.fabric_up = False


def _apply(machine: Machine) -> None:
    bring_down(machine, "inactive")


FAULT = Fault("fabric-manager-stopped", "the fabric manager does not run, so that the fabric is not up", _apply)
