"""dev/kmsg: the log of a boot five days ago, and what happened since, as /dev/kmsg gives its records.

``<priority>,<sequence>,<microseconds since boot>,-;<text>``, see linux/Documentation/ABI/testing/dev-kmsg.
"""

from collections.abc import Iterator

from gpucheck.simulator.machine import UPTIME_S, Function, Machine
from gpucheck.simulator.sysfs.config import BRIDGES
from gpucheck.simulator.sysfs.driver import banner
from gpucheck.simulator.sysfs.pci import MIB, SPEED, driver_of, iommu_groups
from gpucheck.simulator.sysfs.platform import command_line

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
