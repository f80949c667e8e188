"""The host: the driver's kernel module, its build and its device nodes; limits, environment and libraries."""

import re

import msgspec

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.machine.profile import BLACKWELL, VOLTA

EVERY = (50, 60, 70, 75, 80, 86, 90, 100, 120)
# Library -> soname, and an old version of it
LIBRARIES = {
    "nccl": ("libnccl.so.2", "2.18.3"),
    "cudnn": ("libcudnn.so.8", "8.9.7"),
    "cudart": ("libcudart.so.11.0", "11.8.89"),
}
NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
MIB = 1 << 20
SONAMES = {"cudart": "libcudart.so.12", "cublas": "libcublas.so.12", "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2"}


def _wheels(torch: str) -> dict[str, str]:
    """torch and the library wheels that it is built with, so that nothing but the code is missing."""
    from gpucheck.knowledge import tables

    release = next((one for one in tables.torch().releases if one.version == torch), None)
    build = next((one for one in release.builds if one.origin == "pypi"), None) if release else None
    if build is None:
        known = ", ".join(one.version for one in tables.torch().releases)
        raise ValueError(f"torch={torch}: no release whose builds are known; there are {known}")
    family = f"cu{build.cuda.partition('.')[0]}"
    libraries = {"cudnn": build.cudnn, "nccl": build.nccl}
    wheels = {f"nvidia-{name}-{family}": version for name, version in libraries.items() if version is not None}
    return {"torch": f"{torch}+{build.build}", **wheels}


@fault("the installed torch build has no code for a GPU")
def arch_missing(machine: Machine, gpu: int = 0, torch: str = "2.7.1") -> None:
    """The torch build has no code for the GPU: it imports, sees the GPU, and fails at the first kernel.

    Binary code runs on a GPU of the same major capability, so all of those are left out.
    """
    major = int(machine.gpu(gpu).model.compute_capability.partition(".")[0])
    machine.surroundings["code_runs"] = [f"sm_{arch}" for arch in EVERY if arch // 10 != major]
    machine.surroundings["python"] = _wheels(torch)


@fault("the loader finds an older NCCL, cuDNN or CUDA before the one that torch was built for")
def library_mismatch(machine: Machine, library: str = "nccl", version: str = "") -> None:
    check_choice("library", library, LIBRARIES)
    soname, old = LIBRARIES[library]
    path = f"/usr/local/lib/{soname.partition('.so')[0]}.so.{version or old}"
    machine.surround("libraries", soname=soname, path=path, source="LD_LIBRARY_PATH")


@fault("RLIMIT_MEMLOCK is small")
def memlock_small(machine: Machine, kib: int = 64) -> None:
    machine.surroundings["memlock_bytes"] = kib * 1024


@fault("a variable that steers NCCL, CUDA or the loader was left in the environment")
def nccl_env(machine: Machine, name: str = "NCCL_P2P_DISABLE", value: str = "1") -> None:
    """A variable left in the environment changes what NCCL does. This process's own environment stays as it is."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name={name}: a variable's name is of capitals, digits and _")
    environment = machine.surroundings.get("environment", {})
    assert isinstance(environment, dict)  # noqa: S101 - only this fault writes it
    machine.surroundings["environment"] = environment | {name: value}


@fault("shared memory (/dev/shm) is small")
def shm_small(machine: Machine, mib: int = 64) -> None:
    machine.surroundings |= {"shm_bytes": mib * MIB, "shm_free_bytes": mib * MIB}


@fault("two copies of a CUDA library are on the loader's path")
def two_libraries(machine: Machine, library: str = "cudart") -> None:
    check_choice("library", library, SONAMES)
    soname = SONAMES[library]
    machine.surround("libraries", soname=soname, path=f"/opt/cuda/lib64/{soname}", source="LD_LIBRARY_PATH")
    machine.surround("libraries", soname=soname, path=f"/usr/local/cuda-12.8/lib64/{soname}", source="ld.so.cache")


WHY = ("failed", "no-headers")
# Only the proprietary module drives GPUs up to Volta, only the open one Blackwell.
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
