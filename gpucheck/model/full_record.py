"""What ``gpucheck record --full`` adds to a recording: CUDA's answers, copies with all timings, durations."""

from typing import Literal

import msgspec

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.copies import Copied

IntMatrix = tuple[tuple[int | None, ...], ...]


class CudaGap(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the CUDA driver API without a result. code: CUresult; None: the driver has no such function."""

    call: str
    subject: str
    code: int | None


class CudaDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device as CUDA lists it. attributes: by name of CUdevice_attribute, without CU_DEVICE_ATTRIBUTE_.

    free_bytes: with a context of this process and nothing else of it. A value that CUDA rejected is None and a gap.
    """

    name: str | None
    bus_id: str | None
    uuid: str | None
    memory_bytes: int | None
    free_bytes: int | None
    attributes: dict[str, int]


class CudaReading(msgspec.Struct, frozen=True, kw_only=True, tag="reading"):
    """Answers of the CUDA driver API. can_access: row: accessing device, column: device with the memory; 1 is yes.

    p2p: the same by name of CUdevice_P2PAttribute. seconds: of import, cuInit, each context and each load of kernels.
    """

    driver: str | None
    bindings: str
    devices: tuple[CudaDevice, ...]
    can_access: IntMatrix
    p2p: dict[str, IntMatrix]
    seconds: dict[str, float]
    gaps: tuple[CudaGap, ...]


class CudaFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """CUDA could not be used on this host: the reason, and what to do."""

    why: str
    fix: str = ""


class CopyTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one copy of ``size`` bytes, over samples of ``repeats`` copies each.

    purpose: of the step. together: number of simultaneous copies of the step. src, dst: positions in the report's
    devices, -1 is the host. node: NUMA node of the host's memory, None is that of the device. mad_s: median deviation.
    way: what let the copies start together, as in Measured.timing.
    """

    purpose: str
    together: int
    src: int
    dst: int
    method: str
    node: int | None
    size: int
    repeats: int
    samples: int
    median_s: float
    mad_s: float
    min_s: float
    max_s: float
    way: Literal["gate", "spin", "events"] = "gate"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the recording ran, with everything that it printed.

    status: its exit status, negative for a signal, None if it did not start or did not end within limit_s; then why
    has the reason. skipped: it was not run, or rejected this host. output: empty where other fields of the recording
    hold it.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float
    seconds: float = 0.0
    status: int | None = None
    why: str | None = None
    skipped: bool = False
    output: str = ""
    errors: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine did and gpucheck did not expect. source: the step that saw it.

    seen, expected: as that step words them; expected is empty if anything else would do.
    """

    source: str
    subject: str
    seen: str
    expected: str = ""


class FullRecord(msgspec.Struct, frozen=True, kw_only=True):
    """bandwidth, copied: as measured, without findings; a replay evaluates them.

    not_measured: why there is none. timings: of every step, in order. seconds: of each part of the recording.
    programs: what ran until now, in order. complete: False if the recording was ended before all of them had run.
    """

    cuda: CudaReading | CudaFailure
    bandwidth: BandwidthReport | None
    copied: Copied | None = None
    not_measured: str | None
    timings: tuple[CopyTiming, ...]
    seconds: dict[str, float]
    programs: tuple[Ran, ...] = ()
    complete: bool = True
