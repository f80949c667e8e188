"""Secure Boot is on and the module bears no signature that the firmware knows: the kernel rejects it."""

import msgspec

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    if machine.driver.loaded_version is None:
        raise ValueError("no driver is loaded on this machine")
    machine.secure_boot = True
    machine.driver = msgspec.structs.replace(machine.driver, loaded_version=None, loaded_flavour=None)
    machine.log("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", age_s=3600)
    machine.log("nvidia: Loading of unsigned module is rejected", age_s=3600)


FAULT = Fault(
    name="module-rejected",
    summary="Secure Boot rejects the unsigned nvidia module (NVML 9)",
    apply=_apply,
)
