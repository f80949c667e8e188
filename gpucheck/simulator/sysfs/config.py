"""PCI configuration space: 4096 bytes that lspci reads as it would read those of the real function.

Layout: PCI Local Bus and PCI Express base specifications, and linux/include/uapi/linux/pci_regs.h.
"""

import struct

from gpucheck.simulator.machine import Function

SIZE = 4096
PORT_TYPE = {"gpu": 0, "nvswitch": 0, "nic": 0, "root-port": 4, "switch-upstream": 5, "switch-downstream": 6}
BRIDGES = ("root-port", "switch-upstream", "switch-downstream")
# Where the capabilities stand; the specification leaves that to the device.
POWER_MANAGEMENT, EXPRESS, AER, FURTHER = 0x40, 0x60, 0x100, 0x150
PAYLOAD_256, READ_512 = 1, 2
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
    struct.pack_into("<IHH", space, EXPRESS + 4, PAYLOAD_256, PAYLOAD_256 << 5 | READ_512 << 12 | 0x0F, 0)
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
