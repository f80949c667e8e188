"""The driver was set to use less of the NVLinks' bandwidth, to save power."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

MODES = {"off": 1, "minimum": 2, "half": 3, "three-quarters": 4}  # NVML_GPU_NVLINK_BW_MODE_*
HOPPER = 9  # nvmlDeviceArchitecture_t: one mode for the system there, one for each GPU later


def _apply(machine: Machine, mode: str = "half") -> None:
    check_choice("mode", mode, MODES)
    linked = [gpu for gpu in machine.gpus if gpu.model.nvlink and gpu.model.fabric]
    if not linked:
        raise ValueError(f"profile {machine.profile.name} has no NVLink with bandwidth modes")
    for gpu in linked:
        if gpu.model.architecture > HOPPER:
            gpu.answer({"nvlink.bandwidth_mode": MODES[mode]})
        else:
            machine.nvml["nvlink.bandwidth_mode"] = str(MODES[mode])


FAULT = Fault("nvlink-bandwidth-mode", "the driver limits the bandwidth of the NVLinks", _apply)
