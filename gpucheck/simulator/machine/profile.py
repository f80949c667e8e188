"""What a simulated machine is made of, as data: the shape of a profile, ``parts.yml`` and ``cpus.yml``."""

import re
from functools import cache
from typing import ClassVar, Literal

import msgspec

from gpucheck.model import DriverState
from gpucheck.simulator.data import HERE, read, unknown

VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL = 5, 6, 7, 8, 9, 10  # nvmlDeviceArchitecture_t
SMALL_BAR_MIB = 256


class NvLinkPorts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVLink ports of a GPU model. version: NVML's enum (6 = 4.0). speed_mb_s: raw signalling speed, one link."""

    links: int
    version: int
    speed_mb_s: int


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Present where the GPU reports NVSwitch fabric registration (Hopper and newer)."""

    health_mask: int


class Thermal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in degrees Celsius. None: not reported by the driver for this product."""

    shutdown: int | None = None
    slowdown: int | None = None
    memory: int | None = None
    operating: int | None = None


class MigSlice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a GPU instance of one MIG profile has, as ``nvidia-smi mig -lgip`` lists it. slices: of seven."""

    slices: int
    memory_mib: int
    multiprocessors: int
    copy_engines: int


class GpuModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU product. pcie_p2p: NVML's P2P status between two of them over PCIe (0 OK, 1 CNS, 2 GNS).

    power_range_w: the lowest and the highest limit that may be set. retired_pages: ECC counts pages, not rows.
    ecc_enabled: as it comes from the factory. mig_slices: its known MIG profiles, by name.
    coherent: joined to a Grace CPU by NVLink-C2C. multiprocessors, memory_bus_bits: None if unknown.
    unsourced: values from general knowledge of the product, without a source or a capture.
    """

    name: str
    device_id: str
    subsystem_id: str
    class_id: Literal["030000", "030200"]
    compute_capability: str
    architecture: int
    brand: int
    memory_mib: int
    bar1_mib: int
    generation: int
    width: int = 16
    power_limit_w: int
    power_range_w: tuple[int, int]
    thermal: Thermal
    clocks_mhz: tuple[int, int]
    multiprocessors: int | None = None
    memory_bus_bits: int | None = None
    nvlink: NvLinkPorts | None = None
    fabric: Fabric | None = None
    ecc: bool = True
    ecc_enabled: bool = True
    mig: bool = False
    mig_slices: dict[str, MigSlice] = msgspec.field(default_factory=dict)
    coherent: bool = False
    row_remap: bool = False
    retired_pages: bool = False
    display: bool = False
    fan: bool = False
    pcie_p2p: int = 0
    source: str
    unsourced: tuple[str, ...] = ()
    kind: ClassVar[str] = "gpu"
    rdma: ClassVar[None] = None

    @property
    def ids(self) -> str:
        return f"10de:{self.device_id}"

    @property
    def subsystem(self) -> str:
        return f"10de:{self.subsystem_id}"

    @property
    def rebar(self) -> bool:
        """Products whose firmware brings the capability; on older ones the size is fixed."""
        return self.architecture >= AMPERE and self.bar1_mib > SMALL_BAR_MIB

    @property
    def application_clocks(self) -> bool:
        """Those without a display have them (PCI class 3D controller); GeForce boards do not."""
        return self.class_id == "030200"


@cache
def gpu_model(name: str) -> GpuModel:
    """One GPU product. Raises LookupError or ValueError as ``load`` does."""
    names = tuple(sorted(path.stem for path in (HERE / "gpus").glob("*.yml")))
    if name not in names:
        raise LookupError(unknown("GPU model", name, names))
    return read(HERE / "gpus" / f"{name}.yml", GpuModel)


BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


class Rdma(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The RDMA device of a network card, as its files in sysfs. rate: of an active port, ``400 Gb/sec (4X NDR)``.

    layer, model, board: ``Unknown`` and None for EFA, whose driver has no other answer.
    """

    rate: str
    layer: Literal["InfiniBand", "Ethernet", "Unknown"]
    model: str | None = None
    board: str | None = None
    firmware: str


class PciPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of PCI function other than a GPU. class_id: needed for a network card, given by the kind for others.

    rdma: of a network card; needed where a profile names its RDMA device.
    """

    kind: Literal["root-port", "switch-upstream", "switch-downstream", "nvswitch", "nic"]
    ids: str
    generation: int
    width: int = 16
    class_id: str | None = None
    rdma: Rdma | None = None
    subsystem: ClassVar[str] = "0000:0000"
    bar1_mib: ClassVar[int] = 0
    rebar: ClassVar[bool] = False


class ProfileDevice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PCI function of a machine: a ``part`` of parts.yml or a ``gpu`` model, under a root bus or a bridge.

    width: lanes that are wired, where that is fewer than the part has.
    trained: (generation, lanes) of the link where its other end is not on this machine's bus, as in a virtual machine.
    net, infiniband: of a network card, the names of its interfaces and of its RDMA device.
    cable: False where nothing is connected to its port. virtual_of: the function of which this is a virtual one.
    acs: ACS control register of a bridge after boot.
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
    cable: bool = True
    acs: int = 0
    virtual_of: str | None = None
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
        if not self.present:
            return DriverState()
        version, flavour = self.version, self.flavour
        return DriverState(
            loaded_version=version, loaded_flavour=flavour, installed_version=version, installed_flavour=flavour
        )


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine. numa_nodes: the CPU list of each node. roots: root buses by name, ``0000:3a``.

    cpu: a product of cpus.yml. sockets: default: as many as NUMA nodes.
    iommu: ``identity`` passes addresses through (iommu=pt), ``translating`` maps them, ``off``: no IOMMU.
    virtual: a guest, which sees neither its host's bridges nor error reporting nor clocks.
    default_route: the interface that has it.
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
    default_route: str | None = None
    services: tuple[str, ...] = ()
    devices: tuple[ProfileDevice, ...] = ()
    nvlink: Wiring = Wiring()
    clique: Clique | None = None
    models: dict[str, GpuModel] = msgspec.field(default_factory=dict)
    parts: dict[str, PciPart] = msgspec.field(default_factory=dict)
    name: str = ""

    @property
    def arch(self) -> str:
        """The kernel's name of the architecture: ``x86_64`` or ``aarch64``."""
        return cpus()[self.cpu].arch if self.cpu else "x86_64"


@cache
def parts() -> dict[str, PciPart]:
    return read(HERE / "parts.yml", dict[str, PciPart])


@cache
def port_totals() -> dict[str, dict[str, int]]:
    return read(HERE / "ports.yml", dict[str, dict[str, int]])


@cache
def cuda_versions() -> dict[int, int]:
    """Driver branch -> CUDA version as NVML and CUDA count it, 13000 for 13.0."""
    versions = {branch: text.split(".") for branch, text in read(HERE / "cuda.yml", dict[int, str]).items()}
    return {branch: int(major) * 1000 + int(minor) * 10 for branch, (major, minor) in versions.items()}


@cache
def cpus() -> dict[str, Cpu]:
    return read(HERE / "cpus.yml", dict[str, Cpu])


def part_of(device: ProfileDevice, profile: Profile) -> PciPart | GpuModel:
    """The part or the GPU model that a device is. Raises LookupError or ValueError if it is neither or both."""
    if (device.part is None) == (device.gpu is None):
        raise ValueError(f"devices {device.bus_id}: exactly one of `part` and `gpu` is needed")
    if device.gpu is not None:
        return profile.models.get(device.gpu) or gpu_model(device.gpu)
    known = profile.parts | parts()
    if device.part not in known:
        raise LookupError(f"devices {device.bus_id}: {unknown('part', str(device.part), tuple(sorted(known)))}")
    return known[device.part]


def models_of(profile: Profile) -> list[GpuModel]:
    return [part for part in (part_of(device, profile) for device in gpus_of(profile)) if isinstance(part, GpuModel)]


def gpus_of(profile: Profile) -> tuple[ProfileDevice, ...]:
    """The GPUs in NVML's order, which is the order of their bus ids."""
    return tuple(sorted((d for d in profile.devices if d.gpu is not None), key=lambda d: d.bus_id))
