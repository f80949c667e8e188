"""The wrong flavour of the kernel module is installed: the GPUs need the other one, and the module rejects them."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

# NVML: nvmlDeviceArchitecture_t. Only the proprietary module drives GPUs up to Volta, only the open one Blackwell.
VOLTA, BLACKWELL = 5, 10
REFUSAL = {
    "open": "is not supported by open nvidia.ko because it does not include the required GPU System Processor (GSP).",
    "proprietary": "requires use of the NVIDIA open kernel modules.",
}


def _apply(machine: Machine) -> None:
    machine.require_driver()
    old = [gpu for gpu in machine.gpus if gpu.model.architecture <= VOLTA]
    new = [gpu for gpu in machine.gpus if gpu.model.architecture >= BLACKWELL]
    if not old and not new:
        raise ValueError(f"the GPUs of profile {machine.profile.name} run with either flavour of the module")
    wrong = "open" if old else "proprietary"
    machine.unload_driver(installed_flavour=wrong)
    for gpu in old or new:
        bus_id, ids = gpu.function.bus_id, gpu.function.ids
        machine.log(
            f"NVRM: The NVIDIA GPU {bus_id} (PCI ID: {ids}) installed in this system {REFUSAL[wrong]}", age_s=3600
        )
    machine.log("NVRM: No NVIDIA GPU found.", age_s=3600)


FAULT = Fault(
    "module-flavour",
    "the installed kernel module is open where the GPUs need proprietary, or the reverse (NVML 9)",
    _apply,
)
