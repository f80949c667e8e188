"""sys/bus/pci: every function with its place in the bridge tree, its link, its IOMMU group, its errors, its names."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from gpucheck.simulator.machine import Function, Machine


class Tree:
    """Files below ``root``; every path is relative to it. Folders are made as they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._made: set[str] = set()

    def folder(self, path: str) -> None:
        """An existing, perhaps empty folder."""
        if path not in self._made:
            os.makedirs(f"{self._root}/{path}", exist_ok=True)  # noqa: PTH103 - thousands of files: strings are faster
            self._made.add(path)

    def write(self, folder: str, files: Mapping[str, str]) -> None:
        """Each value with a newline at its end, as the kernel writes them."""
        for name, text in files.items():
            self.raw(f"{folder}/{name}", f"{text}\n".encode())

    def raw(self, path: str, content: bytes) -> None:
        self.folder(path.rpartition("/")[0])
        with open(f"{self._root}/{path}", "wb", buffering=0) as file:  # noqa: PTH123 - as above
            file.write(content)

    def link(self, path: str, target: str) -> None:
        """A relative link, so that the tree can be copied anywhere."""
        above = path.rpartition("/")[0]
        self.folder(above)
        os.symlink(os.path.relpath(target, above), f"{self._root}/{path}")  # noqa: PTH211 - as above


# Layout: PCI Local Bus and PCI Express base specifications, and linux/include/uapi/linux/pci_regs.h.
SIZE = 4096
PORT_TYPE = {"gpu": 0, "nvswitch": 0, "nic": 0, "root-port": 4, "switch-upstream": 5, "switch-downstream": 6}
BRIDGES = ("root-port", "switch-upstream", "switch-downstream")
# Where the capabilities stand; the specification leaves that to the device.
POWER_MANAGEMENT, EXPRESS, AER, FURTHER = 0x40, 0x60, 0x100, 0x150
PAYLOAD_256 = 1
# A correctable error's bit in the AER status register
CORRECTABLE = {"RxErr": 0, "BadTLP": 6, "BadDLLP": 7, "Rollover": 8, "Timeout": 12, "NonFatalErr": 13}


def config_space(function: Function, bars: tuple[int, int], buses: tuple[int, int]) -> bytes:
    """bars: where base address registers 0 and 1 point, 0 for none. buses: the first and last bus below a bridge."""
    if function.lost:
        return b"\xff" * SIZE
    space = bytearray(SIZE)
    _header(space, function, bars, buses)
    struct.pack_into("<BBHH", space, POWER_MANAGEMENT, 0x01, EXPRESS, 0x0003, 0x0008)
    _express(space, function)
    _errors(space, function)
    if function.acs_capability is not None:
        struct.pack_into("<IHH", space, FURTHER, 0x0001_000D, function.acs_capability, function.acs_control)
    elif function.rebar:
        _resizable(space, function.bar1_mib)
    return bytes(space)


def _header(space: bytearray, function: Function, bars: tuple[int, int], buses: tuple[int, int]) -> None:
    vendor, device = (int(word, 16) for word in function.ids.split(":"))
    # Command: memory and bus master. Status: there is a capability list.
    struct.pack_into("<HHHH", space, 0, vendor, device, 0x0406, 0x0010)
    space[9:12] = int(function.class_id, 16).to_bytes(3, "little")
    space[0x34] = POWER_MANAGEMENT
    if function.kind in BRIDGES:
        space[14] = 1
        space[24:27] = bytes((int(function.bus_id[5:7], 16), *buses))
        return
    subvendor, subdevice = (int(word, 16) for word in function.subsystem.split(":"))
    struct.pack_into("<HH", space, 0x2C, subvendor, subdevice)
    if function.bar1_mib:
        # BAR 0: 32 bits. BAR 1 and 2: one 64-bit prefetchable address.
        struct.pack_into("<IQ", space, 0x10, bars[0], bars[1] | 0xC)


def _express(space: bytearray, function: Function) -> None:
    """The PCI Express capability: what kind of port this is, and the link above it, or below a downstream port."""
    kind = PORT_TYPE[function.kind]
    below = function.kind in ("root-port", "switch-downstream")
    slot = 0x100 if below else 0
    link = function.max_generation | function.max_width << 4 | (1 << 20 if below else 0)
    status = function.generation | function.width << 4 | 1 << 12 | (1 << 13 if below else 0)
    speeds = sum(1 << generation for generation in range(1, function.max_generation + 1))
    struct.pack_into("<BBH", space, EXPRESS, 0x10, 0, 2 | kind << 4 | slot)
    request = function.read_request.bit_length() - 8  # 0 is 128 bytes
    struct.pack_into("<IHH", space, EXPRESS + 4, PAYLOAD_256, PAYLOAD_256 << 5 | request << 12 | 0x0F, 0)
    struct.pack_into("<IHH", space, EXPRESS + 0x0C, link, 0x0040, status)
    struct.pack_into("<I", space, EXPRESS + 0x2C, speeds)
    struct.pack_into("<H", space, EXPRESS + 0x30, function.max_generation)


def _errors(space: bytearray, function: Function) -> None:
    more = FURTHER if function.acs_capability is not None or function.rebar else 0
    seen = sum(
        1 << CORRECTABLE.get(name, 0) for (kind, name), n in function.errors.items() if kind == "correctable" and n
    )
    struct.pack_into("<I", space, AER, 0x0002_0001 | more << 20)
    struct.pack_into("<III", space, AER + 4, 0, 0, 0x0046_2030)  # uncorrectable: status, mask, severity
    struct.pack_into("<II", space, AER + 0x10, seen, 0x0000_2000)


def _resizable(space: bytearray, bar1_mib: int) -> None:
    """Sizes are powers of two from 1 MB on, bit 4 first: from 64 MB to the whole, and the one in use."""
    size = (bar1_mib - 1).bit_length()
    sizes = sum(1 << (n + 4) for n in range(6, max(size, 8) + 1) if n + 4 < 32)
    struct.pack_into("<III", space, FURTHER, 0x0001_0015, sizes, 1 | 1 << 5 | size << 8)


SPEED = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}  # GT/s by PCIe generation
NO_RESPONSE = {"current_link_speed": "Unknown", "current_link_width": "63"}
NIC_DRIVERS = {"15b3": "mlx5_core", "1d0f": "efa", "17db": "cxi_ss1"}
MIB = 1 << 20
REGISTERS = 16 * MIB
# The names and the order of drivers/pci/pcie/aer.c
ERRORS = {
    "correctable": ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF"),
    "nonfatal": (
        "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC",
        "UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked",
    ),
}  # fmt: skip
ERRORS["fatal"] = ERRORS["nonfatal"]
TOTAL = {"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}


def write_pci(machine: Machine, tree: Tree, *, whole: bool) -> None:
    """Every function, and the IOMMU groups that they are in. whole: drivers list the functions that they hold."""
    tree.folder("sys/bus/pci/devices")
    groups = iommu_groups(machine)
    folders = {bus_id: device_folder(machine, function) for bus_id, function in machine.functions.items()}
    below = _buses_below(machine)
    for index, (bus_id, function) in enumerate(machine.functions.items()):
        folder = folders[bus_id]
        bars = _bars(function, index)
        tree.write(folder, _attributes(machine, function, bars, below[bus_id]))
        tree.raw(f"{folder}/config", config_space(function, bars, below[bus_id]))
        tree.link(f"sys/bus/pci/devices/{bus_id}", folder)
        driver = driver_of(machine, function)
        if driver is not None:
            tree.folder(f"sys/bus/pci/drivers/{driver}")
            tree.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
            if whole:
                tree.link(f"sys/bus/pci/drivers/{driver}/{bus_id}", folder)
        if function.virtual_of is not None:
            tree.link(f"{folder}/physfn", folders[function.virtual_of])
        _network(machine, tree, function, folder)
        if bus_id in groups:
            _group(machine, tree, groups[bus_id], function, folder)
    for unit in sorted({_unit(machine, machine.functions[bus_id]) for bus_id in groups}):
        tree.link(f"sys/class/iommu/{unit}", f"sys/devices/virtual/iommu/{unit}")


def device_folder(machine: Machine, function: Function) -> str:
    """sys/devices/pci<root bus>/<every bridge above>/<function>, as the kernel nests them."""
    above = (bridge.bus_id for bridge in machine.chain(function.bus_id))
    return "/".join((f"sys/devices/pci{function.root}", *above, function.bus_id))


def iommu_groups(machine: Machine) -> dict[str, int]:
    """Bus id -> group; none where there is no IOMMU. Ports that can isolate give each function a group of its own."""
    if machine.iommu == "off":
        return {}
    return {bus_id: number for number, bus_id in enumerate(sorted(machine.functions))}


def driver_of(machine: Machine, function: Function) -> str | None:
    if function.kind in BRIDGES:
        return "pcieport"
    if function.kind == "nic":
        return NIC_DRIVERS.get(function.ids.partition(":")[0])
    if machine.driver.loaded_version is not None:
        return "nvidia-nvswitch" if function.kind == "nvswitch" else "nvidia"
    return "nouveau" if machine.driver.nouveau_loaded and function.kind == "gpu" else None


def _attributes(machine: Machine, function: Function, bars: tuple[int, int], buses: tuple[int, int]) -> dict[str, str]:
    vendor, device = function.ids.split(":")
    subvendor, subdevice = function.subsystem.split(":")
    node = function.numa_node
    files = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{subvendor}",
        "subsystem_device": f"0x{subdevice}",
        "class": f"0x{function.class_id}",
        "modalias": _alias(function),
        "irq": "0",
        "numa_node": str(-1 if node is None else node),
        "local_cpulist": machine.profile.numa_nodes[node or 0],
        "current_link_speed": f"{SPEED[function.generation]} GT/s PCIe",
        "current_link_width": str(function.width),
        "max_link_speed": f"{SPEED[function.max_generation]} GT/s PCIe",
        "max_link_width": str(function.max_width),
        "enable": "1",
        "resource": _resource(function, bars),
        "power/runtime_status": "active",
        "power/control": "on",
        "d3cold_allowed": "1",
    }
    if function.lost:
        files |= NO_RESPONSE
    if function.kind in BRIDGES:
        files |= {"secondary_bus_number": str(buses[0]), "subordinate_bus_number": str(buses[1])}
    if not machine.profile.virtual:
        files |= {f"aer_dev_{kind}": _counts(function, kind) for kind in ERRORS}
    return files


def _alias(function: Function) -> str:
    """As drivers/pci/pci-sysfs.c prints it: what modprobe finds the driver by."""
    ids = [f"{int(word, 16):08X}" for word in (*function.ids.split(":"), *function.subsystem.split(":"))]
    kind = [function.class_id[n : n + 2].upper() for n in (0, 2, 4)]
    return "pci:v{}d{}sv{}sd{}bc{}sc{}i{}".format(*ids, *kind)


def _counts(function: Function, kind: str) -> str:
    counts = {name: function.errors.get((kind, name), 0) for name in ERRORS[kind]}
    return "\n".join(f"{name} {count}" for name, count in (counts | {TOTAL[kind]: sum(counts.values())}).items())


def _bars(function: Function, index: int) -> tuple[int, int]:
    """Addresses of BAR 0 and BAR 1 that no other function has, each a multiple of its size."""
    if not function.bar1_mib:
        return 0, 0
    return 0xA000_0000 + index * REGISTERS % 0x4000_0000, (index + 1) << 40


def _resource(function: Function, bars: tuple[int, int]) -> str:
    """Thirteen lines of start, end and flags: BAR 0 (registers), BAR 1 (64 bits, prefetchable), the rest not used."""
    lines = [(0, 0, 0)] * 13
    if function.bar1_mib:
        lines[0] = (bars[0], bars[0] + REGISTERS - 1, 0x40200)
        lines[1] = (bars[1], bars[1] + function.bar1_mib * MIB - 1, 0x14220C)
    return "\n".join(f"0x{begin:016x} 0x{end:016x} 0x{flags:016x}" for begin, end, flags in lines)


def _buses_below(machine: Machine) -> dict[str, tuple[int, int]]:
    """The first and the last bus below each function; a bridge with nothing below has the one that it leads to."""
    below: dict[str, list[int]] = {bus_id: [] for bus_id in machine.functions}
    for bus_id in machine.functions:
        for bridge in machine.chain(bus_id):
            below[bridge.bus_id].append(int(bus_id[5:7], 16))
    return {
        bus_id: (min(buses), max(buses)) if buses else (int(bus_id[5:7], 16) + 1 & 0xFF,) * 2
        for bus_id, buses in below.items()
    }


def _network(machine: Machine, tree: Tree, function: Function, folder: str) -> None:
    for name in function.net:
        tree.write(f"{folder}/net/{name}", {"operstate": "up", "type": "1", "mtu": str(function.mtu)})
        # What an ioctl answers has no file.
        tree.write("ethtool", {name: "\n".join(f"{key}: {value}" for key, value in function.statistics.items())})
        tree.link(f"sys/class/net/{name}", f"{folder}/net/{name}")
    for name in function.infiniband:
        # Nor has what netlink answers.
        lines = "\n".join(f"{reporter} {state}" for reporter, state in function.reporters.items())
        tree.write("devlink", {function.bus_id: lines} if lines else {})
        tree.write(f"{folder}/infiniband/{name}", function.rdma)
        tree.link(f"{folder}/infiniband/{name}/device", folder)
        tree.link(f"sys/class/infiniband/{name}", f"{folder}/infiniband/{name}")
        file = machine.device_files[name]
        tree.write(f"{folder}/infiniband_verbs/{file}", {"ibdev": name})
        tree.link(f"sys/class/infiniband_verbs/{file}", f"{folder}/infiniband_verbs/{file}")
        if f"infiniband/{file}" not in machine.missing_nodes:
            tree.raw(f"dev/infiniband/{file}", b"")
        provider = (driver_of(machine, function) or "mlx5_core").removesuffix("_core")
        tree.write("etc/libibverbs.d", {f"{provider}.driver": f"driver {provider}"})


def _group(machine: Machine, tree: Tree, number: int, function: Function, folder: str) -> None:
    group = f"sys/kernel/iommu_groups/{number}"
    tree.write(group, {"type": machine.iommu, "reserved_regions": "0x00000000fee00000 0x00000000feefffff msi"})
    tree.link(f"{group}/devices/{function.bus_id}", folder)
    tree.link(f"{folder}/iommu_group", group)
    unit = _unit(machine, function)
    tree.link(f"{folder}/iommu", f"sys/devices/virtual/iommu/{unit}")
    tree.link(f"sys/devices/virtual/iommu/{unit}/devices/{function.bus_id}", folder)


def _unit(machine: Machine, function: Function) -> str:
    """The IOMMU of the function's root bus, by the name that its vendor's driver gives it."""
    number = sorted({one.root for one in machine.functions.values()}).index(function.root)
    cpu = machine.cpu
    if cpu is not None and cpu.arch == "aarch64":
        return f"smmu3.0x{0x1000_0000 + number * 0x10_0000:016x}"
    return f"ivhd{number}" if cpu is not None and cpu.vendor == "AuthenticAMD" else f"dmar{number}"
