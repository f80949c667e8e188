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

from collections.abc import Iterator
from pathlib import Path

from gpucheck.model import DriverState
from gpucheck.simulator.machine import UPTIME_S, Function, Kernel, Machine, SimulatedGpu
from gpucheck.simulator.sysfs.pci import BRIDGES, MIB, SPEED, Tree, driver_of, iommu_groups
from gpucheck.simulator.sysfs.platform import command_line, next_release

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
NODES = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1")
FIRST_MIG_MINOR = 30
PARAMETERS = Path(__file__).with_name("params.txt")  # some of those that the driver prints, at their defaults


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
    drivers = {driver_of(machine, function) for function in machine.functions.values() if function.kind == "nic"}
    if "efa" in drivers:
        loaded += [("efa", 110592, 0, "-")]
    if "mlx5_core" in drivers:
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
    tree.raw("proc/driver/nvidia/params", PARAMETERS.read_bytes())
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
    if driver.installed_version is None:
        return
    licence = LICENSE[driver.installed_flavour or "open"]
    lines = ("SIMULATED kernel module", f"version={driver.installed_version}", f"license={licence}")
    tree.write(f"lib/modules/{kernel}/updates/dkms", {"nvidia.ko": "\n".join(lines)})


def _source(tree: Tree, version: str) -> None:
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


# ``<priority>,<sequence>,<microseconds since boot>,-;<text>``, see linux/Documentation/ABI/testing/dev-kmsg.
INFORMATION, WARNING, ERROR = 6, 4, 3
STEP_S = 0.004137  # between two lines of the boot
# Payload of one lane in Mbit/s after line coding, as the kernel's PCIE_SPEED2MBS_ENC counts
LANE_MB_S = {1: 2000, 2: 4000, 3: 7877, 4: 15754, 5: 31507, 6: 63015}


def kernel_log(machine: Machine, kernel: str, *, driver: bool) -> str:
    """The records, oldest first. driver: with what the NVIDIA driver prints when it loads."""
    lines = [*_boot(machine, kernel), *(_nvidia(machine) if driver else ())]
    boot = [(number * STEP_S, priority, text) for number, (priority, text) in enumerate(lines)]
    since = [(UPTIME_S - message.age_s, message.priority, message.text) for message in machine.messages]
    records = boot + sorted(since, key=lambda record: record[0])
    return "".join(
        f"{priority},{number},{int(seconds * 1e6)},-;{text}\n"
        for number, (seconds, priority, text) in enumerate(sorted(records, key=lambda record: record[0]))
    )


def _boot(machine: Machine, kernel: str) -> Iterator[tuple[int, str]]:
    board = machine.profile.board
    yield INFORMATION, f"Linux version {kernel} (SIMULATED) (gcc version 12.2.0) #1 SMP PREEMPT_DYNAMIC"
    yield INFORMATION, f"Command line: {command_line(machine, kernel)}"
    yield INFORMATION, f"DMI: {board.vendor} {board.product}, BIOS 1.0 SIMULATED"
    if machine.profile.virtual:
        yield INFORMATION, "Hypervisor detected: KVM"
    yield INFORMATION, f"secureboot: Secure boot {'enabled' if machine.secure_boot else 'disabled'}"
    if machine.iommu != "off":
        kind = "Passthrough (set via kernel command line)" if machine.iommu == "identity" else "Translated"
        yield INFORMATION, f"iommu: Default domain type: {kind}"
    for function in machine.functions.values():
        yield from _found(machine, function)
    for bus_id, group in iommu_groups(machine).items():
        yield INFORMATION, f"pci {bus_id}: Adding to iommu group {group}"
    for function in machine.functions.values():
        yield from _bound(machine, function)


def _found(machine: Machine, function: Function) -> Iterator[tuple[int, str]]:
    header = "01" if function.kind in BRIDGES else "00"
    ids = function.ids
    yield INFORMATION, f"pci {function.bus_id}: [{ids}] type {header} class 0x{function.class_id}"
    if function.bar1_mib:
        yield INFORMATION, f"pci {function.bus_id}: BAR 1 [mem size 0x{function.bar1_mib * MIB:08x} 64bit pref]"
    line = _limited(machine, function)
    if line and function.kind == "gpu":
        yield INFORMATION, f"pci {function.bus_id}: {line}"


def _bound(machine: Machine, function: Function) -> Iterator[tuple[int, str]]:
    driver = driver_of(machine, function)
    if driver == "pcieport" and not machine.profile.virtual and function.kind == "root-port":
        yield INFORMATION, f"pcieport {function.bus_id}: AER: enabled with IRQ 24"
    if driver == "mlx5_core":
        yield INFORMATION, f"mlx5_core {function.bus_id}: firmware version: 28.39.1002"
        line = _limited(machine, function)
        rate, speed = _rate(function), SPEED[function.generation]
        whole = f"{rate / 1000:.3f} Gb/s available PCIe bandwidth ({speed} GT/s PCIe x{function.width} link)"
        yield INFORMATION, f"mlx5_core {function.bus_id}: {line or whole}"


def _nvidia(machine: Machine) -> Iterator[tuple[int, str]]:
    driver = machine.driver
    if driver.nouveau_loaded:
        for gpu in machine.gpus:
            yield INFORMATION, f"nouveau {gpu.function.bus_id}: {gpu.model.name} (SIMULATED)"
    if driver.loaded_version is None:
        return
    yield INFORMATION, "nvidia: loading out-of-tree module taints kernel."
    yield INFORMATION, "nvidia-nvlink: Nvlink Core is being initialized, major device number 234"
    yield INFORMATION, f"NVRM: loading {banner(machine)}"
    for gpu in machine.gpus:
        yield INFORMATION, f"[drm] [nvidia-drm] [GPU ID 0x{_gpu_id(gpu.function):08x}] Loading driver"
    for number, switch in enumerate(f for f in machine.functions.values() if f.kind == "nvswitch"):
        yield INFORMATION, f"nvidia-nvswitch{number}: using MSI ({switch.bus_id})"
    yield INFORMATION, "nvidia-uvm: Loaded the UVM driver, major device number 510."


def _gpu_id(function: Function) -> int:
    domain, bus, _ = function.bus_id.split(":")
    return int(domain, 16) << 16 | int(bus, 16) << 8


def _rate(function: Function) -> int:
    return LANE_MB_S[function.generation] * function.width


def _limited(machine: Machine, function: Function) -> str | None:
    """The kernel's message where a link above a device is slower than the device could use."""
    links = [function, *machine.chain(function.bus_id)]
    slowest = min(links, key=_rate)
    able = LANE_MB_S[function.max_generation] * function.max_width
    if function.lost or _rate(slowest) >= able:
        return None
    return (
        f"{_rate(slowest) / 1000:.3f} Gb/s available PCIe bandwidth, limited by {SPEED[slowest.generation]} GT/s PCIe "
        f"x{slowest.width} link at {slowest.bus_id} (capable of {able / 1000:.3f} Gb/s with "
        f"{SPEED[function.max_generation]} GT/s PCIe x{function.max_width} link)"
    )
