"""Secure Boot is on and the module bears no signature that the firmware knows: the kernel rejects it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    machine.require_driver()
    machine.secure_boot = True
    machine.unload_driver()
    machine.log("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", age_s=3600)
    machine.log("nvidia: Loading of unsigned module is rejected", age_s=3600)


FAULT = Fault("module-rejected", "Secure Boot rejects the unsigned nvidia module (NVML 9)", _apply)
