"""What a simulated machine is made of, as data: the shape of a profile, ``parts.yml`` and ``cpus.yml``."""

import re
from functools import cache
from typing import Literal

import msgspec

from gpucheck.model import DriverState
from gpucheck.simulator.data import HERE, read
from gpucheck.simulator.machine.gpu_model import GpuModel

BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of PCI function other than a GPU. class_id: needed for a network card, given by the kind for others."""

    kind: Literal["root-port", "switch-upstream", "switch-downstream", "nvswitch", "nic"]
    ids: str
    generation: int
    width: int = 16
    class_id: str | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PCI function of a machine: a ``part`` of parts.yml or a ``gpu`` model, under a root bus or a bridge.

    width: lanes that are wired, where that is fewer than the part has.
    trained: (generation, lanes) of the link where its other end is not on this machine's bus, as in a virtual machine.
    net, infiniband: of a network card, the names of its interfaces and of its RDMA device.
    memory_node: NUMA node of a GPU's own memory, where the GPU is a NUMA node (Grace).
    mig: MIG mode is on, with these GPU instances.
    """

    bus_id: str
    under: str
    part: str | None = None
    gpu: str | None = None
    width: int | None = None
    trained: tuple[int, int] | None = None
    net: tuple[str, ...] = ()
    infiniband: tuple[str, ...] = ()
    memory_node: int | None = None
    mig: tuple[str, ...] = ()


class Root(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PCIe root bus. numa_node None: the firmware does not report it, as on most desktops."""

    numa_node: int | None = None


class Baseboard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs, and the links that each of them has to each of these switches."""

    gpus: tuple[int, ...]
    switches: dict[str, int]


class Wiring(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVLink cables. pairs: (GPU, GPU, links). switches: NVSwitch bus id -> links from each GPU to it.

    boards: the same for machines whose GPUs do not all reach every switch.
    hidden_switch_links: links of each GPU to switches that are not on this machine's PCI bus: a virtual machine, or a
    switch of NVLink 5, which is not a PCI device.
    """

    pairs: tuple[tuple[int, int, int], ...] = ()
    switches: dict[str, int] = msgspec.field(default_factory=dict)
    boards: tuple[Baseboard, ...] = ()
    hidden_switch_links: int = 0


class Clique(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of the GPUs in an NVLink domain of several machines."""

    clique_id: int
    cluster_uuid: str


class Cpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CPU product as /proc/cpuinfo shows it. vendor: CPUID's string, or the implementer's code on Arm.

    flags: those that describe the platform, not all of them.
    """

    arch: Literal["x86_64", "aarch64"]
    vendor: str
    family: int
    model: int
    stepping: int
    name: str
    flags: str


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine as DMI names it."""

    vendor: str
    product: str


class Driver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The default driver of the machine. present false: none loaded, none installed."""

    version: str
    flavour: Literal["open", "proprietary"]
    present: bool = True

    def state(self) -> DriverState:
        """As the kernel would show it."""
        if not self.present:
            return DriverState()
        return DriverState(
            loaded_version=self.version,
            loaded_flavour=self.flavour,
            installed_version=self.version,
            installed_flavour=self.flavour,
        )


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine. numa_nodes: the CPU list of each node. roots: root buses by name, ``0000:3a``.

    cpu: a product of cpus.yml. sockets: default: as many as NUMA nodes.
    iommu: ``identity`` passes addresses through (iommu=pt), ``translating`` maps them, ``off``: no IOMMU.
    virtual: a guest, which sees neither its host's bridges nor error reporting nor clocks.
    services: units that run in addition to nvidia-persistenced, each from the package of its name.
    models, parts: products that only this profile has.
    """

    summary: str
    source: str
    board: Board
    driver: Driver
    numa_nodes: tuple[str, ...]
    roots: dict[str, Root]
    cpu: str | None = None
    sockets: int | None = None
    iommu: Literal["off", "identity", "translating"] = "identity"
    virtual: bool = False
    services: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    nvlink: Wiring = Wiring()
    clique: Clique | None = None
    models: dict[str, GpuModel] = msgspec.field(default_factory=dict)
    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    name: str = ""

    @property
    def arch(self) -> str:
        """The kernel's name of the architecture: ``x86_64`` or ``aarch64``."""
        return cpus()[self.cpu].arch if self.cpu else "x86_64"


@cache
def parts() -> dict[str, Part]:
    """Every part of parts.yml by name."""
    return read(HERE / "parts.yml", dict[str, Part])


@cache
def cuda_versions() -> dict[int, int]:
    """Driver branch -> CUDA version as NVML and CUDA count it, 13000 for 13.0."""
    versions = {branch: text.split(".") for branch, text in read(HERE / "cuda.yml", dict[int, str]).items()}
    return {branch: int(major) * 1000 + int(minor) * 10 for branch, (major, minor) in versions.items()}


@cache
def cpus() -> dict[str, Cpu]:
    return read(HERE / "cpus.yml", dict[str, Cpu])
