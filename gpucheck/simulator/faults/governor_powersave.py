"""The CPUs are set to save power, which costs latency and host copies."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    if machine.profile.virtual:
        raise ValueError(f"profile {machine.profile.name} is a virtual machine, and sets no CPU clocks")
    machine.governor = "powersave"


FAULT = Fault("governor-powersave", "the CPU frequency governor is powersave", _apply)
