"""The PCI tree of a recording as devices of a profile."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gpucheck.model import Gpu, PciDevice
from gpucheck.simulator.machine.profile import BUS_ID, Device, Part, parts

Kind = Literal["root-port", "switch-upstream", "switch-downstream", "nvswitch", "nic"]
BRIDGE = "0604"
# Where a recording has no values of a link: the slowest there is, so that nothing looks faster than it was
UNKNOWN_GENERATION, UNKNOWN_WIDTH = 1, 1


class RecordedTree:
    """devices: every function that matters, with the bridges above. roots: root bus -> NUMA node. parts: our own.

    gpus: the GPUs of the bus, in its order; those that only NVML knew (in a container) are among them.
    """

    def __init__(self, pci: Iterable[PciDevice], reported: Iterable[Gpu]) -> None:
        functions = {one.bus_id: one for one in pci if BUS_ID.fullmatch(one.bus_id) and _matters(one)}
        for gpu in reported:
            functions.setdefault(gpu.pci_bus_id, _unseen(gpu))
        self._functions = dict(sorted(functions.items()))
        self.roots: dict[str, int | None] = {}
        self.parts: dict[str, Part] = {}
        self.gpus = tuple(one for one in self._functions.values() if one.is_nvidia_gpu)
        self._kinds: dict[str, Kind] = {}
        self.devices = tuple(self._device(one) for one in sorted(self._functions.values(), key=lambda o: len(o.path)))

    def _device(self, one: PciDevice) -> Device:
        parent = next((bus_id for bus_id in reversed(one.path) if bus_id in self._kinds), None)
        under = parent or self._root(one)
        if one.is_nvidia_gpu:
            return Device(bus_id=one.bus_id, under=under)
        self._kinds[one.bus_id] = kind = self._kind(one, parent)
        name, width = self._part(one, kind)
        return Device(
            bus_id=one.bus_id,
            under=under,
            part=name,
            width=width,
            net=one.net_names,
            infiniband=one.infiniband_names,
        )

    def _root(self, one: PciDevice) -> str:
        """The root bus; where a bridge above was not recorded, the device's own bus is used."""
        root = one.root if one.root == one.bus_id[:7] else one.bus_id[:7]
        if self.roots.get(root) is None:
            self.roots[root] = one.numa_node
        return root

    def _kind(self, one: PciDevice, parent: str | None) -> Kind:
        """Only root reads what a port is; otherwise its place in the tree decides."""
        if one.is_nvswitch:
            return "nvswitch"
        if one.is_network_card:
            return "nic"
        if parent is None:
            return "root-port"
        return "switch-downstream" if self._kinds[parent] == "switch-upstream" else "switch-upstream"

    def _part(self, one: PciDevice, kind: Kind) -> tuple[str, int | None]:
        """One of parts.yml if it is that, with fewer lanes perhaps, else one of the profile's own."""
        part = Part(
            kind=kind,
            ids=f"{one.vendor_id}:{one.device_id}",
            generation=one.link.device_max_generation or one.link.max_generation or UNKNOWN_GENERATION,
            width=one.link.max_width or UNKNOWN_WIDTH,
            class_id=one.class_id if kind == "nic" else None,
        )
        for name, known in (parts() | self.parts).items():
            if msgspec.structs.replace(known, width=part.width) == part and known.width >= part.width:
                return name, part.width if known.width > part.width else None
        name = f"{kind}-{one.vendor_id}-{one.device_id}"
        number = sum(own.startswith(name) for own in self.parts)
        name += f"-{number + 1}" if number else ""
        self.parts[name] = part
        return name, None


def _matters(one: PciDevice) -> bool:
    """Not the sound and USB functions that come with some GPUs."""
    return one.is_nvidia_gpu or one.is_nvswitch or one.is_network_card or one.class_id.startswith(BRIDGE)


def _unseen(gpu: Gpu) -> PciDevice:
    return PciDevice(
        bus_id=gpu.pci_bus_id,
        vendor_id="10de",
        device_id=gpu.device_id,
        class_id="030200",
        numa_node=gpu.numa_node,
        root=gpu.pci_bus_id[:7],
        link=gpu.pcie,
    )
