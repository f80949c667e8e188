"""The driver is installed, its kernel module is not loaded."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    machine.unload_driver()


FAULT = Fault("driver-not-loaded", "the nvidia module is installed but not loaded (NVML 9)", _apply)
