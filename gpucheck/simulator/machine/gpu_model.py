"""GPU products as data: ``gpus/``, one file each."""

from functools import cache
from typing import Literal

import msgspec

from gpucheck.simulator.data import HERE, read, unknown


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
    decoders: int = 0
    jpeg: int = 0
    ofa: int = 0


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
