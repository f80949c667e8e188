"""The outside contract of ``gpucheck bandwidth``. GB/s is 10**9 bytes per second; bidirectional is the sum of both."""

from typing import Literal

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.device import Device
from gpucheck.model.diagnosis.observations import Observations

SCHEMA = "gpucheck.bandwidth/1"
Matrix = tuple[tuple[float | None, ...], ...]


class MeasuredDevice(Device, frozen=True, kw_only=True):
    """A device that copies went from and to; its place in the list is its row and column.

    fabric_handles: whether CUDA offers fabric handles for the memory of this GPU (CUDA device attribute 128), by which
    GPUs of other hosts in its NVLink domain map it; memory of such handles also needs an IMEX channel. None: unknown.
    """

    fabric_handles: bool | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A bandwidth with its spread: slowest and fastest sample, and the median absolute deviation of the median.

    timing: what let the copies start together: the gate, a kernel that spins, or nothing (events).
    """

    gb_s: float
    mad_percent: float
    slowest_gb_s: float
    fastest_gb_s: float
    samples: int
    size_bytes: int
    timing: Literal["gate", "spin", "events"] = "gate"


class MeasuredPair(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """An ordered pair, by position. ratio: of the expected bandwidth. alone: taken with nothing else running.

    both_ways: the sum of both directions at once. by_method: other ways than a write by the source's copy engine.
    load_latency_us: of one load by a kernel of dst from the memory of src.
    """

    src: int
    dst: int
    cls: str | None
    measured: Measured | None = None
    expected_gb_s: float | None = None
    low_gb_s: float | None = None
    high_gb_s: float | None = None
    ratio: float | None = None
    basis: str | None = None
    alone: bool = False
    latency_us: float | None = None
    load_latency_us: float | None = None
    staged_gb_s: float | None = None
    both_ways_gb_s: float | None = None
    both_ways_expected_gb_s: float | None = None
    both_ways_low_gb_s: float | None = None
    both_ways_ratio: float | None = None
    by_method: dict[str, float] = msgspec.field(default_factory=dict)
    bytes_verified: int = 0


class SizePoint(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One point of a sweep over sizes."""

    src: int
    dst: int
    cls: str | None
    size_bytes: int
    gb_s: float


class HostNode(msgspec.Struct, frozen=True, kw_only=True):
    """Copies between a device and pinned host memory on one NUMA node."""

    node: int
    h2d_gb_s: float | None = None
    d2h_gb_s: float | None = None


class HostLink(msgspec.Struct, frozen=True, kw_only=True):
    """Copies between a device and pinned host memory on its own NUMA node. by_node: on every node of the host.

    h2d_kernel_gb_s, d2h_kernel_gb_s: by loads and stores of a kernel instead of the copy engine.
    """

    device: int
    h2d_gb_s: float | None = None
    d2h_gb_s: float | None = None
    h2d_kernel_gb_s: float | None = None
    d2h_kernel_gb_s: float | None = None
    by_node: tuple[HostNode, ...] = ()


class PeerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a device may address another's memory. Rows: the device that accesses, columns: whose memory it is.

    cuda: what cuDeviceCanAccessPeer returns; copies ran with peer access enabled exactly there, in both directions.
    nvml: NVML's P2P status for writes, ``OK CNS GNS TNS DR NS``. None: not reported, or one and the same device.
    """

    cuda: tuple[tuple[bool | None, ...], ...]
    nvml: tuple[tuple[str | None, ...], ...] = ()


class BandwidthReport(Answer, frozen=True, kw_only=True):
    """One run. Matrices: row is the source, null was not measured.

    method: how the numbers were made, one sentence a line. rounds: how many rounds one direction took.
    planned_s, device_s: device time as planned and as taken; seconds: the whole run's.
    peer_access: None where the copy engine does not know.
    local_gb_s: copies inside each device. integrity: bytes and words of the data check.
    contended: other processes used the GPUs meanwhile.
    observations: all of it as ``gpucheck diagnose --observations`` reads it.
    """

    schema: str = SCHEMA
    engine: str
    kind: str
    depth: str
    versions: dict[str, str | None]
    planned_s: float
    device_s: float
    rounds: int
    devices: tuple[MeasuredDevice, ...]
    method: tuple[str, ...]
    notes: tuple[str, ...] = ()
    contended: bool = False
    pairs: tuple[MeasuredPair, ...] = ()
    matrices: dict[str, Matrix] = msgspec.field(default_factory=dict)
    peer_access: PeerAccess | None = None
    host_device: tuple[HostLink, ...] = ()
    local_gb_s: tuple[float | None, ...] = ()
    sizes: tuple[SizePoint, ...] = ()
    integrity: dict[str, int] = msgspec.field(default_factory=dict)
    tensor: dict[str, float] | None = None
    observations: Observations = Observations()

    def bus_id(self, position: int) -> str:
        device = self.devices[position]
        return device.bus_id or str(device.index)
