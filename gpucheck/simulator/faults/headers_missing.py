"""The build headers of the running kernel are not installed: the next driver cannot be built for it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine) -> None:
    machine.running.headers = False


FAULT = Fault("headers-missing", "the running kernel has no build headers", _apply)
