"""What is measured and what comes back: flows, steps, timings, comparisons. Sent between parent and child as JSON."""

import math
from typing import Literal

import msgspec

KIB, MIB = 1 << 10, 1 << 20
HOST = -1  # in place of a device's position: the host's pinned memory

# write: launched by the source, read: launched by the destination. ce: copy engine, sm: a kernel's loads and stores.
# staged: through host memory, which is what a copy does where peer access is off.
Method = Literal["ce-write", "ce-read", "sm-write", "sm-read", "staged"]
Operation = Literal["integrity", "bandwidth", "latency"]
Damage = Literal["untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip", "mixed"]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a copy. index: the GPU's in NVML's order, or the number of a CPU process."""

    index: int
    name: str
    bus_id: str | None = None
    uuid: str | None = None
    numa_node: int | None = None

    @property
    def label(self) -> str:
        """What findings call it: the bus id where there is one."""
        return self.bus_id or f"cpu{self.index}"


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Copies from one place to another. src and dst: positions among the run's devices, or HOST.

    node: the NUMA node of the host's memory, None is the device's own.
    """

    src: int
    dst: int
    method: Method = "ce-write"
    node: int | None = None


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a buffer: offset and size in bytes, both multiples of 8."""

    offset: int
    size: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the child: these flows at the same time.

    purpose: which part of the run it belongs to, in words for progress and results.
    size: bytes of one copy. rounds: of an integrity step, copies of fresh data; bursts: copies in a row in each.
    regions: of an integrity step, what is copied and checked. devices: how many the run has, whose data could be mixed.
    samples: how many a timing needs at least and at most. planned_s: device time that it should take.
    """

    operation: Operation
    purpose: str
    flows: tuple[Flow, ...]
    size: int = 0
    regions: tuple[Region, ...] = ()
    rounds: int = 1
    bursts: int = 1
    seed: int = 0
    devices: int = 0
    samples: tuple[int, int] = (7, 21)
    planned_s: float = 0.0


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one copy of ``size`` bytes, over samples of ``repeats`` copies each. mad_s: median deviation."""

    flow: Flow
    size: int
    repeats: int
    samples: int
    median_s: float
    mad_s: float
    min_s: float
    max_s: float

    @property
    def gb_s(self) -> float:
        """10**9 bytes per second, from the median."""
        return self.size / self.median_s / 1e9

    @property
    def error(self) -> float:
        """Standard error of the median as a fraction of it."""
        return 1.2533 * 1.4826 * self.mad_s / self.median_s / math.sqrt(self.samples)


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """A word that is not what it should be. index: counted from the start of the region."""

    index: int
    got: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A region of a destination against its pattern, as its owner sees it. sample: some of the wrong words."""

    words: int
    mismatches: int
    first: int | None = None
    last: int | None = None
    sample: tuple[Wrong, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One flow's integrity over all rounds of a step. host_bytes: part of them that the host compared too.

    mismatches: wrong words by the owner's count. disagreements: words that the host sees otherwise than the owner.
    first: byte offset of the first wrong word in the region. damage: what the first bad round looks like.
    """

    flow: Flow
    bytes_verified: int
    host_bytes_verified: int
    rounds: int
    bad_rounds: int = 0
    mismatches: int = 0
    disagreements: int = 0
    first: int | None = None
    damage: Damage | None = None
    evidence: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """What a step came to. device_s: the time the devices were busy with it (by their own clock)."""

    timings: tuple[Timing, ...] = ()
    checks: tuple[Check, ...] = ()
    device_s: float = 0.0


FailureKind = Literal[
    "refused", "stuck", "crashed", "killed", "no-peers-left", "not-timed", "no-memory", "no-process", "defect",
    "not-started", "missing-package",
]  # fmt: skip


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A step without an answer. code: cudaError_t where CUDA returned one.

    refused: CUDA returned an error for a copy. stuck: the deadline came first. crashed: the child died of a fault in
    native code; killed: by a signal from outside. no-peers-left: the GPU maps no further peer. not-timed: see NotTimed.
    no-memory: GPU or host had none left. defect: gpucheck, or a package that it uses, went wrong.
    fix: what to do, where the engine knows.
    """

    kind: FailureKind
    purpose: str
    flows: tuple[Flow, ...] = ()
    detail: str = ""
    code: int | None = None
    fix: str = ""

    @property
    def is_the_copys(self) -> bool:
        """Whether driver or hardware failed the copy. Every other kind says nothing about the pair."""
        return self.kind in ("refused", "stuck", "crashed")


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """What the child could set up. buffer_bytes: of each buffer, less than asked for where memory is short.

    peer_access: row: the device that accesses, column: whose memory; whether CUDA offers it, None within one device.
    Empty where the engine does not know. numa_nodes: of the host, with CPUs that this process may use.
    fabric_handles: of each device, as in model.bandwidth.MeasuredDevice. Empty where the engine does not know.
    """

    buffer_bytes: int
    methods: tuple[Method, ...]
    clock: str
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    peer_access: tuple[tuple[bool | None, ...], ...] = ()
    numa_nodes: tuple[int, ...] = ()
    fabric_handles: tuple[bool | None, ...] = ()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told before anything else. buffer_bytes: wanted size of each device's two buffers."""

    engine: Literal["driver", "torch", "cpu"]
    devices: tuple[Device, ...]
    buffer_bytes: int
    parent_pid: int
