"""The first question about each GPU takes long: it is initialised then, and without persistence every time."""

import re

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, seconds: str = "3") -> None:
    """Per GPU, in the call that hands out its handle; 0.5 is half a second."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", seconds) or float(seconds) == 0:
        raise ValueError(f"seconds={seconds}: more than 0, such as 3 or 0.5")
    machine.nvml["init.seconds"] = seconds


FAULT = Fault("nvml-slow", "NVML takes this long to initialise each GPU", _apply)
