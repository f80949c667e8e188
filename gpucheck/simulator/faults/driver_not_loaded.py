"""The driver is installed, its kernel module is not loaded."""

import msgspec

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    machine.driver = msgspec.structs.replace(machine.driver, loaded_version=None, loaded_flavour=None)


FAULT = Fault(name="driver-not-loaded", summary="the nvidia module is installed but not loaded (NVML 9)", apply=_apply)
