"""How the GPUs and network cards of a host are connected."""

from typing import Literal

import msgspec

from gpucheck.model.host.hardware import PcieLink
from gpucheck.model.host.network import RdmaPort


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Expected unidirectional bandwidth of a GPU pair in 10**9 bytes per second, with the reasoning as text."""

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
    compute_capability: str | None = None
    numa_node: int | None = None
    cpu_affinity: str | None = None
    numa_affinity: str | None = None
    gpu_numa_id: str | None = None


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A network card of the matrix.

    classes[i] is the path class to GPU i, None if unknown. peers[i]: the same to network card i,
    ``X`` to itself; empty where the source has no such row.
    role: ``compute`` (traffic of GPUs), ``management``, ``storage``, ``bond`` (a leg of one), ``unused``, ``virtual``,
    ``firmware`` or ``unknown``, for a reason; empty where no host was read. gpus: indexes of those below the same PCIe
    switch. ports: as Linux shows them.
    """

    label: str
    name: str | None = None
    classes: tuple[str | None, ...] = ()
    peers: tuple[str | None, ...] = ()
    pci_bus_id: str | None = None
    numa_node: int | None = None
    role: str = ""
    reason: str = ""
    gpus: tuple[int, ...] = ()
    ports: tuple[RdmaPort, ...] = ()


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """An unordered GPU pair, a < b, with its path class (NV#, PIX, PXB, PHB, NODE, SYS) and expected bandwidth.

    narrowest: bus id at the lower end of the slowest PCIe link of the path, None if all are equal or unknown.
    reduced: bus ids of the links on the way that run below what their two ends allow.
    """

    a: int
    b: int
    cls: str | None
    expected: Expected | None = None
    narrowest: str | None = None
    reduced: tuple[str, ...] = ()


NVSWITCH = "nvswitch"
"""The far end of NVLinks to switches that the source does not distinguish."""


class NumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NUMA node and the CPU it belongs to.

    index: None if the source has none. cpus: a Linux CPU list. vendor: as /proc/cpuinfo writes it
    (``GenuineIntel``). family, model: as /proc/cpuinfo counts them.
    """

    index: int | None
    cpus: str | None = None
    arch: str | None = None
    vendor: str | None = None
    family: int | None = None
    cpu_model: int | None = None


class WiredFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU, a network card, or a bridge on the way to one.

    label: ``GPU0``, ``NIC0``, empty for a bridge. above: bus id of the next bridge towards the CPU, None at the top.
    root: the host bridge, empty if the source has none. link: as PciDevice.link has it.
    """

    bus_id: str
    kind: Literal["gpu", "nic", "root-port", "switch-upstream", "switch-downstream", "bridge"]
    label: str = ""
    above: str | None = None
    root: str = ""
    numa_node: int | None = None
    link: PcieLink = PcieLink()


class NvLinkBundle(msgspec.Struct, frozen=True, kw_only=True):
    """Active NVLinks with the same two ends. a: a GPU's label. b: a GPU's label, a switch's bus id, or NVSWITCH."""

    a: str
    b: str
    links: int


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """Bridges come before what is below them. ``told``: False if the tree was inferred from path classes alone.

    nvlinks_known: False if the source lists GPUs but not NVLinks.
    """

    nodes: tuple[NumaNode, ...] = ()
    functions: tuple[WiredFunction, ...] = ()
    nvlinks: tuple[NvLinkBundle, ...] = ()
    told: bool = True
    nvlinks_known: bool = True
