"""A wedged driver: one NVML call never returns."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.nvml.exports import called

OUTCOMES = {"sleeping": "hang", "uninterruptible": "hang-uninterruptible"}


def _apply(machine: Machine, call: str, state: str) -> None:
    """sleeping: SIGTERM ends it. uninterruptible: the kernel shows it as D, and only SIGKILL does."""
    called(call)
    if state not in OUTCOMES:
        raise ValueError(f"state={state}: choose one of {', '.join(OUTCOMES)}")
    machine.nvml[f"call.{call}"] = OUTCOMES[state]


FAULT = Fault(
    name="nvml-hang",
    summary="an NVML call never returns",
    apply=_apply,
    parameters={"call": "nvmlDeviceGetName", "state": "sleeping"},
)
