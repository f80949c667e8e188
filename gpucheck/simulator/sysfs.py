"""D/root: what the kernel of a simulated machine would show below /sys, /proc and /lib/modules.

Which files mean what, all below D/root (a shell can write each of them)::

    loaded X               sys/module/nvidia/version holds X
      open                 proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  X ..."
      proprietary          proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  X ..."
      bound                <device>/driver -> .../bus/pci/drivers/nvidia
    installed X            lib/modules/<kernel>/updates/dkms/nvidia.ko (or extra/nvidia.ko) has the line version=X
      open                 and the line license=Dual MIT/GPL
      proprietary          and the line license=NVIDIA
    nouveau loaded         the folder sys/module/nouveau is there

Links are relative, so that the tree can be copied anywhere.
"""

import os
import struct
from pathlib import Path

from gpucheck.model import DriverState
from gpucheck.simulator.machine import Function, Machine

SPEED = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}  # GT/s by PCIe generation
LICENSE = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
BANNER = {
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (SIMULATED)",
    "proprietary": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  (SIMULATED)",
}
PORT_KINDS = ("root-port", "switch-upstream", "switch-downstream")


def write_root(machine: Machine, root: Path, kernel: str) -> None:
    """Write the whole tree. kernel: the release whose module folder holds the installed driver."""
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for function in machine.functions.values():
        folder = device_folder(machine, function, root)
        _files(folder, _attributes(machine, function))
        (folder / "config").write_bytes(_config(machine, function))
        _link(devices / function.bus_id, folder)
        driver = _driver(machine.driver, function)
        if driver is not None:
            (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            _link(folder / "driver", root / "sys/bus/pci/drivers" / driver)
    nodes = {f"node{n}/cpulist": cpus for n, cpus in enumerate(machine.profile.numa_nodes)}
    _files(root / "sys/devices/system/node", nodes)
    board = machine.profile.board
    _files(root / "sys/class/dmi/id", {"sys_vendor": board.vendor, "product_name": board.product})
    _files(root / "proc", {"cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{kernel} ro quiet"})
    _modules(machine.driver, root, kernel)


def device_folder(machine: Machine, function: Function, root: Path) -> Path:
    """sys/devices/pci<root bus>/<every bridge above>/<function>, as the kernel nests them."""
    above = (bridge.bus_id for bridge in machine.chain(function.bus_id))
    return (root / "sys/devices" / f"pci{function.root}").joinpath(*above, function.bus_id)


def _attributes(machine: Machine, function: Function) -> dict[str, str]:
    vendor, device = function.ids.split(":")
    subvendor, subdevice = function.subsystem.split(":")
    node = function.numa_node
    files = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{subvendor}",
        "subsystem_device": f"0x{subdevice}",
        "class": f"0x{function.class_id}",
        "numa_node": str(-1 if node is None else node),
        "local_cpulist": machine.profile.numa_nodes[node or 0],
        "current_link_speed": f"{SPEED[function.generation]} GT/s PCIe",
        "current_link_width": str(function.width),
        "max_link_speed": f"{SPEED[function.max_generation]} GT/s PCIe",
        "max_link_width": str(function.max_width),
        "enable": "1",
    }
    if function.bar1_mib:
        files["resource"] = _resource(function.bar1_mib << 20)
    return files


def _resource(bar1_bytes: int) -> str:
    """BAR 0 (16 MiB registers), then BAR 1 as 64-bit prefetchable memory: start, end, flags."""
    start = 0x20_0000_0000
    bars = ((0xB000_0000, 16 << 20, 0x40200), (start, bar1_bytes, 0x14220C))
    return "\n".join(f"0x{begin:016x} 0x{begin + size - 1:016x} 0x{flags:016x}" for begin, size, flags in bars)


def _config(machine: Machine, function: Function) -> bytes:
    """The first 64 bytes of configuration space, which is what every user may read."""
    vendor, device = (int(word, 16) for word in function.ids.split(":"))
    header = bytearray(64)
    struct.pack_into("<HHHH", header, 0, vendor, device, 0x0406, 0x0010)
    header[9:12] = int(function.class_id, 16).to_bytes(3, "little")
    if function.kind in PORT_KINDS:
        below = [f.bus_id for f in machine.functions.values() if function in machine.chain(f.bus_id)]
        buses = [int(bus_id[5:7], 16) for bus_id in below] or [int(function.bus_id[5:7], 16)]
        header[14] = 1
        header[24:27] = bytes((int(function.bus_id[5:7], 16), min(buses), max(buses)))
    return bytes(header)


def _driver(driver: DriverState, function: Function) -> str | None:
    if function.kind in PORT_KINDS:
        return "pcieport"
    if driver.loaded_version is not None:
        return "nvidia-nvswitch" if function.kind == "nvswitch" else "nvidia"
    return "nouveau" if driver.nouveau_loaded and function.kind == "gpu" else None


def _modules(driver: DriverState, root: Path, kernel: str) -> None:
    (root / "sys/module").mkdir(parents=True)
    loaded = []
    if driver.nouveau_loaded:
        _files(root / "sys/module/nouveau", {"refcnt": "0"})
        loaded.append("nouveau 3104768 0 - Live 0x0000000000000000")
    if driver.loaded_version is not None:
        _files(root / "sys/module/nvidia", {"version": driver.loaded_version, "refcnt": "0"})
        banner = BANNER[driver.loaded_flavour or "open"].format(driver.loaded_version)
        _files(root / "proc/driver/nvidia", {"version": f"{banner}\nGCC version:  gcc version 12.2.0"})
        loaded.append("nvidia_uvm 2080768 0 - Live 0x0000000000000000")
        loaded.append("nvidia 103956480 1 nvidia_uvm, Live 0x0000000000000000")
    (root / "proc/modules").write_text("".join(f"{line}\n" for line in loaded), encoding="utf-8")
    modules = root / "lib/modules" / kernel
    modules.mkdir(parents=True)
    if driver.installed_version is not None:
        licence = LICENSE[driver.installed_flavour or "open"]
        lines = ("SIMULATED kernel module", f"version={driver.installed_version}", f"license={licence}")
        _files(modules / "updates/dkms", {"nvidia.ko": "\n".join(lines)})


def _files(folder: Path, files: dict[str, str]) -> None:
    """Each value with a newline at its end, as the kernel writes them."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    link.symlink_to(os.path.relpath(target, link.parent))
