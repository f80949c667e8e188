"""The driver's files: loaded modules, /proc/driver/nvidia, device nodes, installed kernels and what DKMS built.

Which files mean what, all below D/root (a shell can write each of them)::

    loaded X               sys/module/nvidia/version holds X
      open                 proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  X ..."
      proprietary          proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  X ..."
      bound                <device>/driver -> .../bus/pci/drivers/nvidia
    installed X            lib/modules/<kernel>/updates/dkms/nvidia.ko (or extra/nvidia.ko) has the line version=X
      open                 and the line license=Dual MIT/GPL
      proprietary          and the line license=NVIDIA
    nouveau loaded         the folder sys/module/nouveau is there
"""

from gpucheck.model import DriverState
from gpucheck.simulator.machine import Kernel, Machine, SimulatedGpu
from gpucheck.simulator.sysfs.platform import next_release
from gpucheck.simulator.sysfs.tree import Tree

LICENSE = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
# As /proc/driver/nvidia/version and the kernel log show it
BANNER = {
    "open": "NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  (SIMULATED)",
    "proprietary": "NVIDIA UNIX {arch} Kernel Module  {version}  (SIMULATED)",
}
# Name, size, users, used by: as in /proc/modules, the newest first
MODULES = (
    ("nvidia_uvm", 2080768, 0, "-"),
    ("nvidia_drm", 131072, 0, "-"),
    ("nvidia_modeset", 1556480, 1, "nvidia_drm,"),
    ("nvidia", 103956480, 2, "nvidia_uvm,nvidia_modeset,"),
)
CORE_MODULES = (("nvidia_uvm", 2080768, 0, "-"), ("nvidia", 103956480, 1, "nvidia_uvm,"))
# Some of those that the driver prints, at their defaults
PARAMETERS = {
    "ModifyDeviceFiles": 1,
    "DeviceFileUID": 0,
    "DeviceFileGID": 0,
    "DeviceFileMode": 438,
    "EnableMSI": 1,
    "NvLinkDisable": 0,
    "EnableGpuFirmware": 18,
    "EnableResizableBar": 0,
}
NODES = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1")
FIRST_MIG_MINOR = 30


def write_driver(machine: Machine, tree: Tree, kernel: str, *, whole: bool) -> None:
    """whole: with parameters, device nodes, headers, DKMS and a second kernel, as an installed host has them.

    Without it these are not written: in the lab the packages and boots of the host write them.
    """
    tree.folder("sys/module")
    driver, loaded = machine.driver, []
    if driver.nouveau_loaded:
        tree.write("sys/module/nouveau", {"refcnt": "0"})
        loaded.append(("nouveau", 3104768, 0, "-"))
    if driver.loaded_version is not None:
        _loaded(machine, tree, driver.loaded_version)
        loaded += MODULES if whole else CORE_MODULES
        if whole:
            _started(machine, tree, driver.loaded_version)
    if any(function.kind == "nic" for function in machine.functions.values()):
        loaded += [("mlx5_ib", 450560, 0, "-"), ("mlx5_core", 2138112, 1, "mlx5_ib,")]
        if machine.peer_memory and driver.loaded_flavour == "proprietary":
            loaded += [("nvidia_peermem", 16384, 0, "-")]
    lines = (f"{name} {size} {users} {by} Live 0x0000000000000000\n" for name, size, users, by in loaded)
    tree.raw("proc/modules", "".join(lines).encode())
    if not whole:
        tree.folder(f"lib/modules/{kernel}")
        _installed(driver, tree, kernel)
        return
    if driver.installed_version is not None:
        _source(tree, driver.installed_version)
    _kernel(machine, tree, kernel, machine.running)
    _kernel(machine, tree, next_release(kernel), machine.upcoming)


def banner(machine: Machine) -> str:
    """The name that the loaded module gives itself."""
    driver = machine.driver
    return BANNER[driver.loaded_flavour or "open"].format(arch=machine.profile.arch, version=driver.loaded_version)


def _loaded(machine: Machine, tree: Tree, version: str) -> None:
    tree.write("sys/module/nvidia", {"version": version, "refcnt": "0"})
    tree.write("proc/driver/nvidia", {"version": f"NVRM version: {banner(machine)}\nGCC version:  gcc version 12.2.0"})


def _started(machine: Machine, tree: Tree, version: str) -> None:
    """The modules next to nvidia, its parameters, each GPU's entry, and the device nodes."""
    for name, _, users, _ in MODULES[:-1]:
        tree.write(f"sys/module/{name}", {"version": version, "refcnt": str(users)})
    parameters = "\n".join(f"{name}: {value}" for name, value in PARAMETERS.items())
    tree.write("proc/driver/nvidia", {"params": parameters})
    nodes = [*NODES, *(["nvidia-caps-imex-channels/channel0"] if "nvidia-imex" in machine.services else [])]
    for minor, gpu in enumerate(machine.by_minor()):
        folder = f"proc/driver/nvidia/gpus/{gpu.function.bus_id}"
        tree.write(folder, {"information": _information(gpu, minor, version)})
        nodes += [f"nvidia{minor}", *_instances(tree, gpu, minor)]
    for node in sorted(set(nodes) - machine.missing_nodes):
        tree.raw(f"dev/{node}", b"")


def _information(gpu: SimulatedGpu, minor: int, version: str) -> str:
    """A GPU that failed to initialise keeps its entry and reports neither UUID nor firmware."""
    started = gpu.visible or gpu.open_error == "EPERM"
    rows = {
        "Model": gpu.model.name,
        "IRQ": "0",
        "GPU UUID": gpu.uuid if started else "GPU-????????-????-????-????-????????????",
        "Video BIOS": "SIMULATED" if started else "??.??.??.??.??",
        "Bus Type": "PCIe",
        "DMA Size": "52 bits",
        "DMA Mask": "0xfffffffffffff",
        "Bus Location": gpu.function.bus_id,
        "Device Minor": str(minor),
        "GPU Firmware": version if started else "N/A",
        "GPU Excluded": "No",
    }
    return "\n".join(f"{key + ':':<14} \t {value}" for key, value in rows.items())


def _instances(tree: Tree, gpu: SimulatedGpu, minor: int) -> list[str]:
    """MIG: a folder for each GPU instance and its compute instance; the device nodes that grant access to them."""
    nodes = []
    for number, _ in enumerate(gpu.mig, start=1):
        instance = f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{number}"
        for step, folder in enumerate((instance, f"{instance}/ci0")):
            device = FIRST_MIG_MINOR + 16 * minor + 2 * number + step
            text = f"DeviceFileMinor: {device}\nDeviceFileMode: 292\nDeviceFileModify: 1"
            tree.write(folder, {"access": text})
            nodes.append(f"nvidia-caps/nvidia-cap{device}")
    return nodes


def _installed(driver: DriverState, tree: Tree, kernel: str) -> None:
    """The stub of a compiled module."""
    if driver.installed_version is None:
        return
    licence = LICENSE[driver.installed_flavour or "open"]
    lines = ("SIMULATED kernel module", f"version={driver.installed_version}", f"license={licence}")
    tree.write(f"lib/modules/{kernel}/updates/dkms", {"nvidia.ko": "\n".join(lines)})


def _source(tree: Tree, version: str) -> None:
    """The module's source, added to DKMS."""
    source = f"usr/src/nvidia-{version}"
    tree.write(source, {"dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"'})
    tree.link(f"var/lib/dkms/nvidia/{version}/source", source)


def _kernel(machine: Machine, tree: Tree, release: str, kernel: Kernel) -> None:
    """A kernel as its package and DKMS leave it: build headers, the module, and DKMS' own record of having built it."""
    tree.write(f"lib/modules/{release}", {"modules.dep": ""})
    if kernel.headers:
        tree.write(f"usr/src/linux-headers-{release}", {"Makefile": "# SIMULATED kernel headers"})
        tree.link(f"lib/modules/{release}/build", f"usr/src/linux-headers-{release}")
    version = machine.driver.installed_version
    if version is not None and kernel.module:
        arch, dkms = machine.profile.arch, f"var/lib/dkms/nvidia/{version}"
        _installed(machine.driver, tree, release)
        tree.write(f"{dkms}/{release}/{arch}/module", {"nvidia.ko": "SIMULATED kernel module"})
        tree.link(f"var/lib/dkms/nvidia/kernel-{release}-{arch}", f"{dkms}/{release}/{arch}")
