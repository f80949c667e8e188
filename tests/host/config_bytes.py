"""Configuration spaces made by hand, as the PCI Express specification lays them out."""

import struct

PORT_TYPES = {"root-port": 4, "switch-upstream": 5, "switch-downstream": 6, "pcie-to-pci": 7}


def bridge(kind=None, acs=None, size=4096, identity=0x000D):
    """A bridge's bytes. kind None: conventional PCI. acs: (capability, control). size: how much the reader may see.

    identity: of the last extended capability, ACS.
    """
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, 0x8086, 0x352A, 0x0406, 0x0010)
    space[0x0E] = 1
    space[0x34] = 0x40
    struct.pack_into("<BB", space, 0x40, 0x01, 0x68 if kind else 0x00)  # power management comes first
    if kind:
        struct.pack_into("<BBH", space, 0x68, 0x10, 0x00, PORT_TYPES[kind] << 4 | 2)
        struct.pack_into("<HH", space, 0x100, 0x0001, 0x148 << 4 | 2)  # AER
        if acs:
            struct.pack_into("<HHHH", space, 0x148, identity, 0x0001, *acs)
    return bytes(space[:size])
