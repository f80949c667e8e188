"""PCI functions from sysfs: NVIDIA's, bridges, network cards and their DMA functions, each with its way up and link."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from gpucheck.host.readers.config_space import (
    ADDRESS_TRANSLATION,
    EXPRESS,
    ORDINARY_BYTES,
    WHOLE_BYTES,
    Read,
    access_control,
    capability,
    extended_capability,
    word,
)
from gpucheck.host.readers.files import folder_names, hex_id, text
from gpucheck.host.readers.pci import NVIDIA, functions
from gpucheck.model import AcsControl, AerCounts, PciDevice, PcieLink
from gpucheck.model.finding import BUS_ID
from gpucheck.model.host.hardware import DATA_DIRECT

PCI_BRIDGE, NETWORK = "0604", ("0200", "0207")
ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}  # by GT/s
# A link that is down reads as 0 or, with the register all ones, as 63 lanes.
NO_WIDTH = (0, 63, 255)
MEMORY_64 = 0x0010_0000  # IORESOURCE_MEM_64 in Linux' include/linux/ioport.h
STANDARD_BARS = 6
LARGEST_REQUEST = 5  # 4096 bytes; 6 and 7 are reserved
T = TypeVar("T")
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


class _Function(NamedTuple):
    folder: str
    vendor: str
    class_id: str
    path: tuple[str, ...]
    root: str
    bridge: Bridge | None

    @property
    def bus_id(self) -> str:
        return self.folder.rpartition("/")[2]


def read_pci(root: Path) -> tuple[PciDevice, ...]:
    """The functions below ``root``/sys, ordered by bus id; none where there is no such folder."""
    placed = {f.bus_id: f for f in _placed(root)}
    below = {f.path[-1]: f for f in reversed(placed.values()) if f.path}
    facing = _facing_down(placed.values())
    groups = root / "sys/kernel/iommu_groups"
    return tuple(_device(f, _other_end(f, below, facing), groups) for f in placed.values())


def _placed(root: Path) -> Iterator[_Function]:
    for found in functions(root):
        class_id = found.class_id
        is_bridge = class_id[:4] == PCI_BRIDGE
        wanted = is_bridge or found.vendor == NVIDIA or class_id[:4] in NETWORK
        if not wanted and not (found.vendor == DATA_DIRECT[0] and _id(found.folder) == DATA_DIRECT[1]):
            continue
        folder = os.path.realpath(found.folder)
        parts = folder.split("/")
        above = tuple(part for part in parts[:-1] if BUS_ID.fullmatch(part))
        roots = [part.removeprefix("pci") for part in parts if ROOT.fullmatch(part)]
        bridge = _of_config(f"{folder}/config", read_bridge, Bridge()) if is_bridge else None
        yield _Function(folder, found.vendor, class_id, above, roots[-1] if roots else "", bridge)


def _of_config(config: str, take: Callable[[Read], T], nothing: T) -> T:
    """Only the registers on the way are read: each byte is an access to the device."""
    try:
        descriptor = os.open(config, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return nothing
    try:
        return take(lambda offset, size: os.pread(descriptor, size, offset))
    except OSError:
        return nothing
    finally:
        os.close(descriptor)


def read_request(read: Read) -> int | None:
    """Max_Read_Request_Size in bytes (PCI Express base specification, 7.5.3.4); None where it cannot be read."""
    express = capability(read, EXPRESS)
    control = None if express is None else word(read, express + 8)
    return None if control is None or control >> 12 & 7 > LARGEST_REQUEST else 128 << (control >> 12 & 7)


def translates_addresses(read: Read) -> bool:
    """Whether the function has the capability ATS (PCI Express base specification, 10.5)."""
    return extended_capability(read, ADDRESS_TRANSLATION) is not None


def _facing_down(functions: Iterable[_Function]) -> dict[str, bool]:
    """By bridge, whether its link is the one below it.

    If the kind could not be read, the place decides: a port on the root bus faces down, and below it upstream and
    downstream ports take turns.
    """
    facing: dict[str, bool] = {}
    for function in sorted(functions, key=lambda f: len(f.path)):
        if function.bridge is None:
            continue
        kind = function.bridge.kind
        taking_turns = not (function.path and facing.get(function.path[-1], True))
        facing[function.bus_id] = taking_turns if kind == "bridge" else kind != "switch-upstream"
    return facing


def _other_end(function: _Function, below: dict[str, _Function], facing: dict[str, bool]) -> str | None:
    if facing.get(function.bus_id):
        partner = below.get(function.bus_id)
        return partner.folder if partner else None
    return function.folder.rpartition("/")[0] if function.path else None


def _device(function: _Function, other_end: str | None, groups: Path) -> PciDevice:
    folder, bridge = function.folder, function.bridge
    network, gpu = function.class_id[:4] in NETWORK, function.class_id[:2] == "03"
    group = _target(f"{folder}/iommu_group")
    rdma = folder_names(f"{folder}/infiniband") or () if network else ()
    return PciDevice(
        bus_id=function.bus_id,
        vendor_id=function.vendor,
        device_id=_id(folder),
        class_id=function.class_id,
        numa_node=_numa_node(text(f"{folder}/numa_node")),
        path=function.path,
        root=function.root,
        link=_link(folder, other_end),
        driver=_target(f"{folder}/driver"),
        kind=bridge.kind if bridge else None,
        config_readable=bridge.readable if bridge else False,
        acs=bridge.acs if bridge else None,
        iommu_group=group,
        iommu_type=(text(f"{groups}/{group}/type") or None) if group else None,
        aer=_aer(folder),
        bar1_bytes=bar1_bytes(text(f"{folder}/resource") or "") if gpu else None,
        net_names=_interfaces(folder) if network else (),
        infiniband_names=rdma,
        max_read_request=_of_config(f"{folder}/config", read_request, None) if rdma else None,
        translates=bool(rdma) and _of_config(f"{folder}/config", translates_addresses, False),
    )


def _id(folder: str) -> str:
    return hex_id(text(f"{folder}/device"))


def _interfaces(folder: str) -> tuple[str, ...]:
    """Of a virtual card they are below the virtio device of the PCI function."""
    below = [name for name in folder_names(folder) or () if name == "net" or name.startswith("virtio")]
    places = (f"{folder}/{name}" if name == "net" else f"{folder}/{name}/net" for name in below)
    return tuple(interface for place in places for interface in folder_names(place) or ())


def _target(link: str) -> str | None:
    try:
        return os.readlink(link).rpartition("/")[2]  # noqa: PTH115 - 300 of them are read in a large machine
    except OSError:
        return None


def _link(folder: str, other_end: str | None) -> PcieLink:
    """max_* is what both ends support: a narrow slot is no fault of the card. Without a visible other end: this end"""
    own_generation, own_width = _generation(folder, "max"), _width(folder, "max")
    other_generation = _generation(other_end, "max") if other_end else None
    other_width = _width(other_end, "max") if other_end else None
    return PcieLink(
        generation=_generation(folder, "current"),
        width=_width(folder, "current"),
        max_generation=_smaller(own_generation, other_generation),
        max_width=_smaller(own_width, other_width),
        device_max_generation=own_generation,
    )


def _smaller(a: int | None, b: int | None) -> int | None:
    return min((value for value in (a, b) if value is not None), default=None)


def _generation(folder: str, which: str) -> int | None:
    number = re.match(r"\d+(\.\d+)?", text(f"{folder}/{which}_link_speed") or "")
    return GENERATION.get(float(number[0])) if number else None


def _width(folder: str, which: str) -> int | None:
    words = text(f"{folder}/{which}_link_width") or ""
    return int(words) if words.isdecimal() and int(words) not in NO_WIDTH else None


def _numa_node(words: str | None) -> int | None:
    """sysfs has -1 if the firmware did not report it."""
    return int(words) if words is not None and words.isdecimal() else None


def _aer(folder: str) -> AerCounts | None:
    """The TOTAL lines, which need not be the sum of the others. No files: reporting is the firmware's."""
    counts = [_total(text(f"{folder}/aer_dev_{kind}")) for kind in ("correctable", "nonfatal", "fatal")]
    if any(count is None for count in counts):
        return None
    correctable, non_fatal, fatal = (count or 0 for count in counts)
    return AerCounts(correctable=correctable, non_fatal=non_fatal, fatal=fatal)


def _total(words: str | None) -> int | None:
    found = re.search(r"^TOTAL_ERR_\w+ (\d+)$", words or "", re.MULTILINE)
    return int(found[1]) if found else None


def bar1_bytes(resource: str) -> int | None:
    """The size of the second memory window from a device's ``resource``: start, end and flags by register.

    A 64-bit register takes two lines, which moves BAR 1 to the third line where BAR 0 is one.
    """
    lines = [line.split() for line in resource.splitlines()[:STANDARD_BARS]]
    try:
        bars = [(int(start, 16), int(end, 16), int(flags, 16)) for start, end, flags in lines]
    except ValueError:
        return None
    place = 2 if bars and bars[0][2] & MEMORY_64 else 1
    if place >= len(bars) or not bars[place][2]:
        return None
    start, end, _ = bars[place]
    return end - start + 1 if end > start else None
