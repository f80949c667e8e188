"""Secure Boot is on. The module is signed and runs; the next one that DKMS builds has to be signed too."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    machine.secure_boot = True


FAULT = Fault("secure-boot", "the firmware enforces Secure Boot; the module is signed", _apply)
