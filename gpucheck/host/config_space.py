"""Configuration space of bridges: kind of port and Access Control Services registers.

Source: PCI Express base specification, 7.5.3.2 (port type), 7.6.3 (extended capabilities), 7.7.7 (ACS); the offsets are
those of Linux' include/uapi/linux/pci_regs.h.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from gpucheck.model import AcsControl

Kind = Literal["root-port", "switch-upstream", "switch-downstream", "bridge"]
# The bytes from an offset on: fewer than asked for where the space ends, or where the reader may not go on.
Read = Callable[[int, int], bytes]

STATUS, CAPABILITIES_LISTED, FIRST_CAPABILITY = 0x06, 0x10, 0x34
EXPRESS, ACCESS_CONTROL = 0x10, 0x000D  # capability ids: an ordinary and an extended one
HEADER_BYTES, ORDINARY_BYTES, WHOLE_BYTES = 0x40, 0x100, 0x1000
PORTS: dict[int, Kind] = {4: "root-port", 5: "switch-upstream", 6: "switch-downstream"}


class Bridge(NamedTuple):
    """readable: whether everything was readable that shows if the bridge has ACS; this needs root."""

    kind: Kind = "bridge"
    acs: AcsControl | None = None
    readable: bool = False


def read_bridge(read: Read) -> Bridge:
    """Follow both lists of capabilities. Any content is answered: a list that runs in circles ends."""
    if len(read(ORDINARY_BYTES - 1, 1)) < 1 or _word(read, 0) in (None, 0xFFFF):
        return Bridge()  # the header alone, or a device that has left the bus and reads as ones
    flags = _express_flags(read)
    if flags is None:
        return Bridge(readable=True)  # conventional PCI: it cannot have extended capabilities
    kind: Kind = PORTS.get(flags >> 4 & 0xF, "bridge")
    if len(read(WHOLE_BYTES - 1, 1)) < 1:
        return Bridge(kind)
    return Bridge(kind, _access_control(read), readable=True)


def _express_flags(read: Read) -> int | None:
    """The PCI Express capabilities register, whose bits 4 to 7 are the type of port."""
    if not (_word(read, STATUS) or 0) & CAPABILITIES_LISTED:
        return None
    seen: set[int] = set()
    at = (_word(read, FIRST_CAPABILITY) or 0) & 0xFC
    while at >= HEADER_BYTES and at not in seen:
        seen.add(at)
        header = _word(read, at)
        if header is None:
            return None
        if header & 0xFF == EXPRESS:
            return _word(read, at + 2)
        at = header >> 8 & 0xFC
    return None


def _access_control(read: Read) -> AcsControl | None:
    seen: set[int] = set()
    at = ORDINARY_BYTES
    while at >= ORDINARY_BYTES and at not in seen:
        seen.add(at)
        identity, follow = _word(read, at), _word(read, at + 2)
        if identity is None or follow is None or (identity, follow) in ((0, 0), (0xFFFF, 0xFFFF)):
            return None
        if identity == ACCESS_CONTROL:
            capability, control = _word(read, at + 4), _word(read, at + 6)
            return None if capability is None or control is None else AcsControl(capability=capability, control=control)
        at = follow >> 4 & 0xFFC
    return None


def _word(read: Read, offset: int) -> int | None:
    """A little-endian 16-bit register, None beyond what can be read."""
    content = read(offset, 2)
    return int.from_bytes(content, "little") if len(content) == 2 else None
