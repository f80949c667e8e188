"""The kernel module of the driver, its build, and its device nodes."""

import msgspec

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine

WHY = ("failed", "no-headers")
# NVML: nvmlDeviceArchitecture_t. Only the proprietary module drives GPUs up to Volta, only the open one Blackwell.
VOLTA, BLACKWELL = 5, 10
REFUSAL = {
    "open": "is not supported by open nvidia.ko because it does not include the required GPU System Processor (GSP).",
    "proprietary": "requires use of the NVIDIA open kernel modules.",
}
CHANNEL = "nvidia-caps-imex-channels/channel0"  # of machines with IMEX
NODES = ("nvidia-uvm", "nvidia-uvm-tools", "nvidiactl", "nvidia-modeset")


@fault("the nvidia module is not built for the kernel of the next boot")
def dkms_not_built(machine: Machine, why: str = "failed") -> None:
    check_choice("why", why, WHY)
    if machine.driver.installed_version is None:
        raise ValueError("no driver is installed on this machine")
    machine.upcoming.module = False
    machine.upcoming.headers = why != "no-headers"


@fault("the loaded kernel module is older than the NVML library (NVML 18)")
def driver_mismatch(machine: Machine, loaded: str = "580.95.05") -> None:
    machine.require_driver()
    if machine.driver.loaded_version == loaded:
        raise ValueError(f"loaded={loaded} is the version of the library too")
    machine.driver = msgspec.structs.replace(machine.driver, loaded_version=loaded)


@fault("the nvidia module is installed but not loaded (NVML 9)")
def driver_not_loaded(machine: Machine) -> None:
    machine.unload_driver()


@fault("the running kernel has no build headers")
def headers_missing(machine: Machine) -> None:
    machine.running.headers = False


@fault("the installed kernel module is open where the GPUs need proprietary, or the reverse (NVML 9)")
def module_flavour(machine: Machine) -> None:
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


@fault("Secure Boot rejects the unsigned nvidia module (NVML 9)")
def module_rejected(machine: Machine) -> None:
    machine.require_driver()
    machine.secure_boot = True
    machine.unload_driver()
    machine.log("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", age_s=3600)
    machine.log("nvidia: Loading of unsigned module is rejected", age_s=3600)


@fault("a device node of the driver is missing below /dev")
def node_missing(machine: Machine, node: str = "nvidia-uvm") -> None:
    nodes = (*NODES, *(f"nvidia{number}" for number in range(len(machine.gpus))))
    nodes += (CHANNEL,) if "nvidia-imex" in machine.services else ()
    machine.require_driver()
    check_choice("node", node, nodes)
    machine.missing_nodes.add(node)


@fault("nouveau is loaded and holds the GPUs instead of nvidia (NVML 9)")
def nouveau(machine: Machine) -> None:
    if not machine.gpus:
        raise ValueError(f"profile {machine.profile.name} has no GPU for nouveau to hold")
    machine.unload_driver(nouveau_loaded=True)


@fault("the firmware enforces Secure Boot; the module is signed")
def secure_boot(machine: Machine) -> None:
    """Secure Boot is on. The module is signed and runs; the next one that DKMS builds has to be signed too."""
    machine.secure_boot = True
