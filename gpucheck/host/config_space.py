"""Configuration space of bridges: kind of port and Access Control Services registers."""

from typing import Literal, NamedTuple

from gpucheck.host.readers.config_space import (
    EXPRESS,
    ORDINARY_BYTES,
    WHOLE_BYTES,
    Read,
    access_control,
    capability,
    word,
)
from gpucheck.model import AcsControl

Kind = Literal["root-port", "switch-upstream", "switch-downstream", "bridge"]
PORTS: dict[int, Kind] = {4: "root-port", 5: "switch-upstream", 6: "switch-downstream"}


class Bridge(NamedTuple):
    """readable: whether everything was readable that shows if the bridge has ACS; this needs root."""

    kind: Kind = "bridge"
    acs: AcsControl | None = None
    readable: bool = False


def read_bridge(read: Read) -> Bridge:
    """Follow both lists of capabilities, whatever they contain."""
    if len(read(ORDINARY_BYTES - 1, 1)) < 1 or word(read, 0) in (None, 0xFFFF):
        return Bridge()  # the header alone, or a device that has left the bus and reads as ones
    express = capability(read, EXPRESS)
    flags = None if express is None else word(read, express + 2)
    if flags is None:
        return Bridge(readable=True)  # conventional PCI: it cannot have extended capabilities
    kind: Kind = PORTS.get(flags >> 4 & 0xF, "bridge")
    if len(read(WHOLE_BYTES - 1, 1)) < 1:
        return Bridge(kind)
    acs = access_control(read)
    return Bridge(kind, None if acs is None else AcsControl(capability=acs[0], control=acs[1]), readable=True)
