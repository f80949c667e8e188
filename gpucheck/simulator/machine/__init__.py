"""A simulated machine: its profile, its PCI functions, GPUs and links, and how its GPUs reach each other."""

from gpucheck.simulator.machine.cables import REMOTE_GPU, REMOTE_SWITCH, Link
from gpucheck.simulator.machine.machine import (
    UPTIME_S,
    Function,
    Kernel,
    LoggedMessage,
    Machine,
    Process,
    SimulatedGpu,
    build,
)

__all__ = [
    "REMOTE_GPU",
    "REMOTE_SWITCH",
    "UPTIME_S",
    "Function",
    "Kernel",
    "Link",
    "LoggedMessage",
    "Machine",
    "Process",
    "SimulatedGpu",
    "build",
]
