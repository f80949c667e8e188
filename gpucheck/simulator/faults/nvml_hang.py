"""A wedged driver: one NVML call never returns."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, call: str) -> None:
    machine.nvml[f"call.{call}"] = "hang"


FAULT = Fault(
    name="nvml-hang", summary="an NVML call never returns", apply=_apply, parameters={"call": "nvmlDeviceGetName"}
)
