"""The two lists of capabilities in a PCI function's configuration space.

Source: PCI Express base specification, 7.5.3.2 (port type), 7.6.3 (extended capabilities), 7.7.7 (ACS); the offsets are
those of Linux' include/uapi/linux/pci_regs.h.
"""

from typing import Callable, Optional, Set, Tuple

# (offset, size) -> the bytes there: fewer at the end of what exists, or of what this user may read.
Read = Callable[[int, int], bytes]

STATUS, CAPABILITIES_LISTED, FIRST_CAPABILITY = 0x06, 0x10, 0x34
VENDOR_SPECIFIC, EXPRESS = 0x09, 0x10  # ids of ordinary capabilities
ACCESS_CONTROL, ADDRESS_TRANSLATION = 0x000D, 0x000F  # ids of extended capabilities
HEADER_BYTES, ORDINARY_BYTES, WHOLE_BYTES = 0x40, 0x100, 0x1000


def reader(content: bytes) -> Read:
    """Return a Read of bytes that were read before."""
    return lambda offset, size: content[offset : offset + size]


def word(read: Read, offset: int) -> Optional[int]:
    """Return a little-endian 16-bit register, None beyond what can be read."""
    content = read(offset, 2)
    return int.from_bytes(content, "little") if len(content) == 2 else None


def capability(read: Read, identity: int) -> Optional[int]:
    """Return the offset of an ordinary capability. A list that points back into itself ends."""
    if not (word(read, STATUS) or 0) & CAPABILITIES_LISTED:
        return None
    seen: Set[int] = set()
    at = (word(read, FIRST_CAPABILITY) or 0) & 0xFC
    while at >= HEADER_BYTES and at not in seen:
        seen.add(at)
        header = word(read, at)
        if header is None:
            return None
        if header & 0xFF == identity:
            return at
        at = header >> 8 & 0xFC
    return None


def extended_capability(read: Read, identity: int) -> Optional[int]:
    """Return the offset of an extended capability. A list that points back into itself ends."""
    seen: Set[int] = set()
    at = ORDINARY_BYTES
    while at >= ORDINARY_BYTES and at not in seen:
        seen.add(at)
        found, follow = word(read, at), word(read, at + 2)
        if found is None or follow is None or (found, follow) in ((0, 0), (0xFFFF, 0xFFFF)):
            return None
        if found == identity:
            return at
        at = follow >> 4 & 0xFFC
    return None


def access_control(read: Read) -> Optional[Tuple[int, int]]:
    """Return the capability and control registers of ACS, None without ACS or if they cannot be read."""
    at = extended_capability(read, ACCESS_CONTROL)
    registers = (None, None) if at is None else (word(read, at + 4), word(read, at + 6))
    return None if registers[0] is None or registers[1] is None else (registers[0], registers[1])
