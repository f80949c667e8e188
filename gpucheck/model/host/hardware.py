"""What a host is made of: PCI devices, GPUs, their links, and how GPU pairs are connected.

Bus ids are written the way Linux writes them in sysfs, ``0000:3b:00.0``: four-digit domain, lower case.
"""

from typing import Literal

import msgspec

from gpucheck.model.host.health import Health


class PcieLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One PCIe link as trained now and as its two ends allow. None means not reported.

    max_generation, max_width: what the device and its slot can do together (for NVML readings).
    device_max_generation: what the device could do in a better slot.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    device_max_generation: int | None = None


class AcsControl(msgspec.Struct, frozen=True, kw_only=True):
    """The Access Control Services registers of a bridge (PCIe base specification 7.7.7), raw 16-bit values."""

    capability: int
    control: int


class AerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Advanced Error Reporting totals of one function since boot, from aer_dev_{correctable,nonfatal,fatal}."""

    correctable: int
    non_fatal: int
    fatal: int


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function as sysfs shows it. Ids are four lower-case hex digits, class six (``030200``).

    path: bus ids from the root port down to the upstream bridge, empty for a device on the root bus.
    numa_node: None if unknown to the firmware (sysfs prints -1).
    kind: of a bridge, as its PCI Express capability states; ``bridge`` if that could not be read (only the
    first 64 bytes of configuration space are readable without root). None for everything that is not a bridge.
    link: of a root port or a switch's downstream port the link below it, of every other function the link above it.
    acs: None if the function has no ACS or it could not be read; config_readable distinguishes the two.
    iommu_group, iommu_type: of the group, type as Linux writes it (``identity DMA DMA-FQ``); None without an IOMMU.
    aer: None where the operating system does not own error reporting.
    bar1_bytes: size of base address register 1, the window through which others see the GPU's memory.
    net_names, infiniband_names: of a network card, its interfaces (``ens1f0``) and RDMA devices (``mlx5_0``).
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
    kind: Literal["root-port", "switch-upstream", "switch-downstream", "bridge"] | None = None
    config_readable: bool = False
    acs: AcsControl | None = None
    iommu_group: str | None = None
    iommu_type: str | None = None
    aer: AerCounts | None = None
    bar1_bytes: int | None = None
    net_names: tuple[str, ...] = ()
    infiniband_names: tuple[str, ...] = ()

    @property
    def is_network_card(self) -> bool:
        """An Ethernet (0200) or InfiniBand (0207) controller."""
        return self.class_id[:4] in ("0200", "0207")

    @property
    def is_nvidia_gpu(self) -> bool:
        """An NVIDIA display (0300) or 3D (0302) controller."""
        return self.vendor_id == "10de" and self.class_id[:4] in ("0300", "0302")

    @property
    def is_nvswitch(self) -> bool:
        """An NVIDIA bridge device (0680), which is what NVSwitch chips up to Hopper show as."""
        return self.vendor_id == "10de" and self.class_id[:4] == "0680"


class NvLink5Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Error counters of one link from NVLink 5 (Blackwell) on, cumulative, by NVML's names (fields 206 to 222).

    integrity_errors: how often local errors exceeded a threshold. recoveries: events, whatever their result.
    effective_ber, symbol_ber: raw, see ``bit_error_rate``. None = not reported.
    """

    malformed_packets: int | None = None
    buffer_overruns: int | None = None
    receive_errors: int | None = None
    receive_remote_errors: int | None = None
    receive_general_errors: int | None = None
    integrity_errors: int | None = None
    transmit_discards: int | None = None
    recoveries_succeeded: int | None = None
    recoveries_failed: int | None = None
    recoveries: int | None = None
    effective_errors: int | None = None
    effective_ber: int | None = None
    symbol_errors: int | None = None
    symbol_ber: int | None = None


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One NVLink port of a GPU.

    active: as NCCL counts it. A link that is ``asleep`` (low power) or has its traffic off is not active.
    state: as the driver reports it from Hopper on; None where only active or inactive is reported.
    version: NVML's version enum (5 = NVLink 3.1, 6 = 4.0, 7 = 5.0), as read.
    remote_bus_id: the peer GPU or switch, None if unknown to NVML. remote_link: the port at the far end.
    speed_mb_s: signaling rate each way, 10**6 bytes per second, as NVML's field 164 (or 90) reports it: 26562 for
    NVLink 4, of which 25000 carry data.
    replay_errors, recovery_errors, crc_errors: cumulative counters up to Hopper. counts: those of NVLink 5 and newer.
    """

    link: int
    active: bool
    state: Literal["inactive", "active", "asleep", "traffic-off"] | None = None
    version: int | None = None
    remote_kind: Literal["gpu", "switch", "npu", "unknown"] | None = None
    remote_bus_id: str | None = None
    remote_link: int | None = None
    speed_mb_s: int | None = None
    replay_errors: int | None = None
    recovery_errors: int | None = None
    crc_errors: int | None = None
    counts: NvLink5Counts | None = None


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """NVSwitch fabric registration of one GPU, from nvmlDeviceGetGpuFabricInfo.

    status: an NVML return code, meaningful only when the state is ``completed``; 0 is success.
    clique_id, cluster_uuid: zero on a machine that is alone (HGX), the rack's on NVLink 5 multi-node systems.
    health_mask: raw NVML_GPU_FABRIC_HEALTH_MASK bits, None if the driver is too old to report it.
    health_summary: the driver's verdict on them, None where it reports none.
    """

    state: Literal["not-supported", "not-started", "in-progress", "completed"]
    status: int | None = None
    clique_id: int | None = None
    cluster_uuid: str | None = None
    health_mask: int | None = None
    health_summary: Literal["healthy", "unhealthy", "limited-capacity"] | None = None

    @property
    def spans_hosts(self) -> bool:
        """Whether the driver reports a cluster, which the GPU shares with other hosts."""
        return bool((self.cluster_uuid or "").strip("0-"))


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it. cpu_affinity is a Linux CPU list, ``0-15,32-47``. mig_uuids: of its MIG devices."""

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
    mig_uuids: tuple[str, ...] = ()
    health: Health = Health()

    @property
    def memory_mib(self) -> int | None:
        return None if self.memory_bytes is None else self.memory_bytes >> 20

    @property
    def active_nvlinks(self) -> int:
        return sum(link.active for link in self.nvlinks)


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
    """

    label: str
    name: str | None = None
    classes: tuple[str | None, ...] = ()
    peers: tuple[str | None, ...] = ()
    pci_bus_id: str | None = None
    numa_node: int | None = None


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
