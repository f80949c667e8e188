"""A wedged driver: one NVML call never returns."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import called

OUTCOMES = {"sleeping": "hang", "uninterruptible": "hang-uninterruptible"}


def _apply(machine: Machine, call: str = "nvmlDeviceGetName", state: str = "sleeping") -> None:
    """sleeping: SIGTERM ends it. uninterruptible: the kernel shows it as D, and only SIGKILL does."""
    called(call)
    check_choice("state", state, OUTCOMES)
    machine.nvml[f"call.{call}"] = OUTCOMES[state]


FAULT = Fault("nvml-hang", "an NVML call never returns", _apply)
