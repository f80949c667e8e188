"""A newer kernel is installed and DKMS has not built the module for it: the next boot has no driver."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

WHY = ("failed", "no-headers")


def _apply(machine: Machine, why: str = "failed") -> None:
    check_choice("why", why, WHY)
    if machine.driver.installed_version is None:
        raise ValueError("no driver is installed on this machine")
    machine.upcoming.module = False
    machine.upcoming.headers = why != "no-headers"


FAULT = Fault("dkms-not-built", "the nvidia module is not built for the kernel of the next boot", _apply)
