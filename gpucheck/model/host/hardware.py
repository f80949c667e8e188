"""What a host is made of: PCI devices, GPUs and their links.

Bus ids are written the way Linux writes them in sysfs, ``0000:3b:00.0``: four-digit domain, lower case.
"""

from typing import Literal

import msgspec


class EccCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """ECC errors. volatile: since the driver was loaded. aggregate: over the life of the board."""

    volatile_corrected: int | None = None
    volatile_uncorrected: int | None = None
    aggregate_corrected: int | None = None
    aggregate_uncorrected: int | None = None


class RowRemap(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRemappedRows (Ampere and newer): rows remapped, and whether one waits for a reset or failed."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


class SramErrors(msgspec.Struct, frozen=True, kw_only=True):
    """ECC errors of caches and registers, nvmlDeviceGetSramEccErrorStatus. parity and sec_ded: could not be corrected.

    threshold_exceeded: the driver's own verdict that the board needs service.
    """

    volatile_corrected: int
    volatile_parity: int
    volatile_sec_ded: int
    aggregate_corrected: int
    aggregate_parity: int
    aggregate_sec_ded: int
    threshold_exceeded: bool

    @property
    def volatile_uncorrected(self) -> int:
        """Since the driver was loaded."""
        return self.volatile_parity + self.volatile_sec_ded

    @property
    def aggregate_uncorrected(self) -> int:
        """Over the life of the board."""
        return self.aggregate_parity + self.aggregate_sec_ded


class SpareRows(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRowRemapperHistogram: banks of memory by what is left of their spare rows."""

    every: int
    most: int
    some: int
    few: int
    none: int


class RackPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in an NVLink rack a GPU is, nvmlDeviceGetPlatformInfo: the words by which an operator finds it."""

    chassis_serial: str | None
    slot: int
    tray: int
    host_id: int
    module_id: int


class C2cLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the NVLink-C2C between a GPU and its Grace CPU. Counters: since the driver was loaded.

    speed_mb_s: one way. replays_in_a_row: replays that followed one another.
    """

    link: int
    active: bool | None = None
    speed_mb_s: int | None = None
    interrupts: int | None = None
    replays: int | None = None
    replays_in_a_row: int | None = None
    low_power: bool | None = None


class Confidential(msgspec.Struct, frozen=True, kw_only=True):
    """Confidential computing. ready: whether the GPUs accept work, None where it is off or not reported."""

    enabled: bool
    ready: bool | None = None


class RetiredPages(msgspec.Struct, frozen=True, kw_only=True):
    """Page retirement (before Ampere): pages by cause, and whether some wait for a reset."""

    single_bit: int
    double_bit: int
    pending: bool


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds a context on the GPU."""

    pid: int
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None = None
    name: str | None = None


class PcieErrors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cumulative PCIe error counters of the GPU itself: evaluate differences, not values.

    recoveries: of the link, from its active state; changes of speed are among them (NVML field 169).
    """

    replays: int | None = None
    correctable: int | None = None
    non_fatal: int | None = None
    fatal: int | None = None
    recoveries: int | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one GPU as NVML reports it.

    serial, vbios: as printed on the board and in its firmware.
    clocks_event_reasons: why the clocks are held, by NVML's names in kebab case: ``idle app-clocks sw-power-cap
    hw-slowdown sync-boost sw-thermal hw-thermal hw-power-brake display-clocks``.
    temperature_c and its limits: the GPU core, in degrees Celsius; slowdown is where the hardware throttles.
    temperature_margin_c: degrees that are left until the hardware throttles, 0 or less from there on.
    power_*_w: watts. limit is the one that was set, enforced the lowest of all that apply (also a BMC sets one),
    default the factory's, min and max what may be set.
    sm_clock_mhz, max_sm_clock_mhz: now, and as far as the board can.
    compute_mode: ``default exclusive-thread prohibited exclusive-process``.
    mig, mig_pending: on or off now, and after the next reset; None where the GPU has no MIG.
    repairs_pending: what of the memory is repaired at the next reset (``channel``, ``TPC``). unrepairable: something of
    it cannot be. inforom_valid: whether the infoROM of the board has its checksum.
    recovery_action: NVML field 230, ``none reset reboot drain-p2p drain-and-reset recover-imex bus-reset
    system-reboot``.
    A mode, action or reason that is newer than these names is reported by its number (``unknown-8``, ``0x400``).
    addressing_mode: ``hmm ats none``. virtualization: ``none passthrough vgpu host-vgpu host-vsga``.
    licensed: of a virtual GPU, None for others. gsp_firmware: its version, ``off`` where the driver does without.
    nvlink_bandwidth: the mode, ``full`` or what it was reduced to. c2c: empty for a GPU without NVLink-C2C.
    """

    serial: str | None = None
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_counts: EccCounts = EccCounts()
    row_remap: RowRemap | None = None
    spare_rows: SpareRows | None = None
    repairs_pending: tuple[str, ...] | None = None
    unrepairable: bool | None = None
    inforom_valid: bool | None = None
    sram: SramErrors | None = None
    retired_pages: RetiredPages | None = None
    pcie_errors: PcieErrors = PcieErrors()
    recovery_action: str | None = None
    clocks_event_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_shutdown_c: int | None = None
    temperature_margin_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_enforced_w: float | None = None
    power_default_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    application_clock_mhz: int | None = None
    default_application_clock_mhz: int | None = None
    memory_used_bytes: int | None = None
    gpu_utilization_percent: int | None = None
    addressing_mode: str | None = None
    processes: tuple[GpuProcess, ...] | None = None
    rack: RackPlace | None = None
    virtualization: str | None = None
    licensed: bool | None = None
    gsp_firmware: str | None = None
    nvlink_bandwidth: str | None = None
    c2c: tuple[C2cLink, ...] = ()

    @property
    def memory_used_mib(self) -> int | None:
        return None if self.memory_used_bytes is None else self.memory_used_bytes >> 20


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

    @property
    def is_narrow(self) -> bool:
        """Fewer lanes than both ends have. An idle link may lower its speed, never its lanes."""
        return self.width is not None and self.max_width is not None and self.width < self.max_width

    @property
    def is_slow(self) -> bool:
        now, most = self.generation, self.max_generation
        return now is not None and most is not None and now < most


class AcsControl(msgspec.Struct, frozen=True, kw_only=True):
    """The Access Control Services registers of a bridge (PCIe base specification 7.7.7), raw 16-bit values."""

    capability: int
    control: int


class AerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Advanced Error Reporting totals of one function since boot, from aer_dev_{correctable,nonfatal,fatal}."""

    correctable: int
    non_fatal: int
    fatal: int


# Vendor and device of ConnectX-8's DMA function, which has no RDMA device: rdma-core kernel-boot/rdma_topo.
DATA_DIRECT = ("15b3", "2100")
# Kernel drivers that hold a device for a virtual machine.
PASSED_THROUGH = ("vfio-pci", "pci-stub", "pciback", "nvgrace_gpu_vfio_pci", "nvidia_vgpu_vfio")


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
    max_read_request: of a network card, bytes that it asks for at once; None where root alone may read it.
    translates: of a network card, it has the capability ATS, as for virtual machines; root alone may read that.
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
    max_read_request: int | None = None
    translates: bool = False

    @property
    def is_network_card(self) -> bool:
        return self.class_id[:4] in ("0200", "0207")

    @property
    def is_nvidia_gpu(self) -> bool:
        """An NVIDIA display (0300) or 3D (0302) controller."""
        return self.vendor_id == "10de" and self.class_id[:4] in ("0300", "0302")

    @property
    def is_passed_through(self) -> bool:
        """Whether it is held for a virtual machine: nothing on this host uses it."""
        return self.driver in PASSED_THROUGH

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


# How findings name the counters of a link, of NVLink up to Hopper and from Blackwell on.
UP_TO_HOPPER = {"replay_errors": "replays", "crc_errors": "CRC errors"}
NVLINK_5 = {
    "malformed_packets": "malformed packets",
    "buffer_overruns": "buffer overruns",
    "receive_errors": "receive errors",
    "receive_remote_errors": "remote errors received",
    "receive_general_errors": "header mismatches received",
    "integrity_errors": "local integrity errors",
    "transmit_discards": "discarded packets",
    "effective_errors": "effective errors",
    "symbol_errors": "symbol errors",
}


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

    @property
    def errors(self) -> dict[str, int]:
        """What was counted, by name; what is not reported is not in it."""
        old = {name: getattr(self, field) for field, name in UP_TO_HOPPER.items()}
        new = {name: getattr(self.counts, field) for field, name in NVLINK_5.items()} if self.counts else {}
        return {name: count for name, count in (old | new).items() if count is not None}

    @property
    def recoveries(self) -> int | None:
        """How often the link was down for a moment."""
        counts = self.counts or NvLink5Counts()
        ended = [one for one in (counts.recoveries_succeeded, counts.recoveries_failed) if one is not None]
        reported = (self.recovery_errors, counts.recoveries, sum(ended) if ended else None)
        return max((one for one in reported if one is not None), default=None)


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
