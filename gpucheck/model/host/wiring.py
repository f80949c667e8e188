"""What joins the GPUs of one machine, function by function: enough for a tree, a drawing and the narrowest hop."""

from typing import Literal

import msgspec

from gpucheck.model.host.hardware import PcieLink

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
