"""Fabric Manager has not finished, or does not run: no GPU is registered with the NVSwitch fabric."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    registered = [gpu for gpu in machine.gpus if gpu.model.fabric is not None]
    if not registered:
        raise ValueError(f"no GPU of profile {machine.profile.name} reports an NVSwitch fabric")
    for gpu in registered:
        gpu.fabric_state = "in-progress"


FAULT = Fault("fabric-in-progress", "the NVSwitch fabric is not up: GPUs are not registered yet", _apply)
