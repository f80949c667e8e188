"""A confidential virtual machine whose GPUs were not set to ready after its start: CUDA cannot start."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

HOPPER = 9  # nvmlDeviceArchitecture_t: the first with confidential computing


def _apply(machine: Machine, ready: int = 0) -> None:
    """ready: 1 for a healthy one."""
    if not any(gpu.model.architecture >= HOPPER for gpu in machine.gpus):
        raise ValueError(f"no GPU of profile {machine.profile.name} has confidential computing")
    machine.nvml |= {"confidential.environment": "1", "confidential.feature": "1", "confidential.ready": str(ready)}


FAULT = Fault("confidential-not-ready", "confidential computing is on and the GPUs are not ready", _apply)
