"""A board with NVLink 5 switches without their subnet manager: fabric manager sets up no fabric."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.fabric_manager_stopped import bring_down
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    if machine.packages.pop("nvlsm", None) is None:
        raise ValueError(f"profile {machine.profile.name} needs no NVLSM, or its driver is not loaded")
    bring_down(machine, "failed")


FAULT = Fault("nvlsm-missing", "the subnet manager of NVLink 5 is not installed, so that the fabric is not up", _apply)
