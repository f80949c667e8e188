"""What a host is made of: PCI devices, GPUs, their links, and how GPU pairs are connected.

Bus ids are written the way Linux writes them in sysfs, ``0000:3b:00.0``: four-digit domain, lower case.
"""

from typing import Literal

import msgspec


class PcieLink(msgspec.Struct, frozen=True, kw_only=True):
    """One PCIe link as trained now and as its two ends allow. None is "was not told".

    max_generation, max_width: what the device and its slot can do together (for NVML readings).
    device_max_generation: what the device could do in a better slot.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    device_max_generation: int | None = None


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function as sysfs shows it. Ids are four lower-case hex digits, class six (``030200``).

    path: bus ids from the root port down to the upstream bridge, empty for a device on the root bus.
    numa_node: None where the firmware did not say (sysfs prints -1).
    """

    bus_id: str
    vendor_id: str
    device_id: str
    class_id: str
    numa_node: int | None = None
    path: tuple[str, ...] = ()
    root: str = ""
    link: PcieLink = PcieLink()
    driver: str | None = None

    @property
    def is_nvidia_gpu(self) -> bool:
        """An NVIDIA display (0300) or 3D (0302) controller."""
        return self.vendor_id == "10de" and self.class_id[:4] in ("0300", "0302")

    @property
    def is_nvswitch(self) -> bool:
        """An NVIDIA bridge device (0680), which is what NVSwitch chips up to Hopper show as."""
        return self.vendor_id == "10de" and self.class_id[:4] == "0680"


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One NVLink port of a GPU.

    version: NVML's version enum (5 = NVLink 3.1, 6 = 4.0, 7 = 5.0), as read.
    remote_bus_id: the peer GPU or switch, None where NVML did not say.
    """

    link: int
    active: bool
    version: int | None = None
    remote_kind: Literal["gpu", "switch", "npu", "unknown"] | None = None
    remote_bus_id: str | None = None


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """NVSwitch fabric registration of one GPU, from nvmlDeviceGetGpuFabricInfo.

    status: an NVML return code, meaningful only when the state is ``completed``; 0 is success.
    """

    state: Literal["not-supported", "not-started", "in-progress", "completed"]
    status: int | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it. cpu_affinity is a Linux CPU list, ``0-15,32-47``."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    device_id: str
    compute_capability: str | None = None
    memory_bytes: int | None = None
    bar1_bytes: int | None = None
    numa_node: int | None = None
    cpu_affinity: str | None = None
    pcie: PcieLink = PcieLink()
    nvlinks: tuple[NvLink, ...] = ()
    fabric: Fabric | None = None

    @property
    def active_nvlinks(self) -> int:
        """How many NVLink ports are up."""
        return sum(link.active for link in self.nvlinks)


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU pair should reach, in 10**9 bytes per second and one direction, with the reasoning in words."""

    unidirectional_gb_s: float
    low_gb_s: float
    high_gb_s: float
    basis: str


class TopologyGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as a topology names it; what a pasted matrix cannot know is None."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    numa_node: int | None = None
    cpu_affinity: str | None = None
    numa_affinity: str | None = None
    gpu_numa_id: str | None = None


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network card of the matrix. classes[i] is the path class to GPU i, None where the source does not say."""

    label: str
    name: str | None = None
    classes: tuple[str | None, ...] = ()


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """An unordered GPU pair, a < b, with its path class (NV#, PIX, PXB, PHB, NODE, SYS) and expected bandwidth."""

    a: int
    b: int
    cls: str | None
    expected: Expected | None = None
