"""A broken library: one NVML call ends the process that made it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.library import called


def _apply(machine: Machine, call: str = "nvmlDeviceGetName") -> None:
    called(call)
    machine.nvml[f"call.{call}"] = "crash"


FAULT = Fault("nvml-crash", "an NVML call crashes the process that makes it", _apply)
