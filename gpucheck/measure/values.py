"""Flows, steps, timings and comparisons, exchanged between parent and child as JSON."""

import math
from collections.abc import Callable, Sequence
from math import ceil
from statistics import median
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from gpucheck.model.copies import DataCheck, FailureKind, Flow, Method
from gpucheck.model.device import Device
from gpucheck.model.finding import Finding

KIB, MIB = 1 << 10, 1 << 20
LABELED = 4
Operation = Literal["integrity", "bandwidth", "latency"]
# What let copies start together: a stream waits for a word of host memory, or for a kernel that spins; events: nothing,
# so that the first copies run while later ones are queued.
TimingWay = Literal["gate", "spin", "events"]


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a buffer: offset and size in bytes, both multiples of 8."""

    offset: int
    size: int


class CopyStep(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the child: simultaneous flows.

    purpose: the part of the run, as text for progress and results.
    size: bytes of one copy. rounds: of an integrity step, copies of new data.
    regions: of an integrity step, the data copied and checked. guard: bytes after a region, and before it where there
    are as many, that copies must leave as they are. devices: the number of devices of the run.
    samples: minimum and maximum number. planned_s: estimated device time.
    """

    operation: Operation
    purpose: str
    flows: tuple[Flow, ...]
    size: int = 0
    regions: tuple[Region, ...] = ()
    rounds: int = 1
    guard: int = 0
    seed: int = 0
    devices: int = 0
    samples: tuple[int, int] = (7, 21)
    planned_s: float = 0.0

    @property
    def label(self) -> str:
        """Return its name for progress, with some of its copies by position."""
        ends = [tuple("host" if end < 0 else str(end) for end in (flow.src, flow.dst)) for flow in self.flows]
        more = f" and {len(ends) - LABELED} more" if len(ends) > LABELED else ""
        return f"{self.purpose}: {', '.join(map('>'.join, ends[:LABELED]))}{more}"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one copy of ``size`` bytes, over samples of ``repeats`` copies each. mad_s: median deviation.

    way: of the last sample.
    """

    flow: Flow
    size: int
    repeats: int
    samples: int
    median_s: float
    mad_s: float
    min_s: float
    max_s: float
    way: TimingWay = "gate"

    @property
    def gb_s(self) -> float:
        """Return 10**9 bytes per second, from the median."""
        return self.size / self.median_s / 1e9

    @property
    def error(self) -> float:
        """Return the standard error of the median as a fraction of it."""
        return 1.2533 * 1.4826 * self.mad_s / self.median_s / math.sqrt(self.samples)


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """A word with a wrong value. index: counted from the start of the region."""

    index: int
    got: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A region of a destination compared with its pattern by its device. sample: some of the wrong words."""

    words: int
    mismatches: int
    first: int | None = None
    last: int | None = None
    sample: tuple[Wrong, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The result of a step. device_s: the time that the devices were busy (by their own clock)."""

    timings: tuple[Timing, ...] = ()
    checks: tuple[DataCheck, ...] = ()
    device_s: float = 0.0


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """The setup of the child. buffer_bytes: of each buffer, less than requested if memory is short.

    peer_access: row: accessing device, column: device with the memory; whether CUDA supports it, None within one
    device. Empty if unknown to the engine. numa_nodes: of the host, with CPUs that this process may use.
    fabric_handles: of each device, as in model.bandwidth.MeasuredDevice. Empty if unknown to the engine.
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
    """The first message to a child. buffer_bytes: requested size of each of the two buffers of a device."""

    engine: Literal["driver", "cpu"]
    devices: tuple[Device, ...]
    buffer_bytes: int
    parent_pid: int


OUT_OF_MEMORY = 2
PEERS_USED_UP = 711
# Errors of the program or its build, unrelated to the copied pair.
PROGRAM = frozenset({1, 9, 13, 98, 101, 200, 201, 209, 218, 221, 222, 223, 400})


def kind_of(code: int) -> FailureKind:
    if code == OUT_OF_MEMORY:
        return "no-memory"
    if code == PEERS_USED_UP:
        return "no-peers-left"
    return "defect" if code in PROGRAM else "refused"


# One sample lasts 10 to 20 ms: longer than the resolution of the event clock, shorter than clock changes.
SAMPLE_S = 0.0125
WARM_UP_S = 0.05  # an idle PCIe link retrains on the first traffic, and clocks rise
LATENCY_REPEATS = 100
LATENCY_BYTES = 16
# More operations than this do not fit the queue of a blocked stream, and would start one by one.
MAX_REPEATS = 200
NEARLY_EQUAL = 1.1
STEADY = 0.005  # MAD over median at which seven samples are enough


class Spread(NamedTuple):
    """Median, median absolute deviation, minimum, maximum and number of samples."""

    median: float
    mad: float
    least: float
    greatest: float
    samples: int


def spread(samples: Sequence[float]) -> Spread:
    """Return the spread. Raises ValueError without samples, or for one that is not positive."""
    if not samples:
        raise ValueError("no sample was taken")
    if min(samples) <= 0:
        raise ValueError(f"a copy took {min(samples)} s: the events were not on the stream that copied")
    middle = median(samples)
    return Spread(middle, median(abs(s - middle) for s in samples), min(samples), max(samples), len(samples))


def repeats_for(one_copy_s: float, sample_s: float = SAMPLE_S) -> int:
    return max(1, min(MAX_REPEATS, ceil(sample_s / max(one_copy_s, 1e-9))))


def repeats_together(one_copy_s: Sequence[float], sample_s: float = SAMPLE_S) -> tuple[int, ...]:
    """Return the copies of each simultaneous flow so that all flows end at about the same time.

    Flows with nearly equal times get equal numbers, as one copy is a large part of a short sample.
    """
    counts = tuple(repeats_for(seconds, sample_s) for seconds in one_copy_s)
    equal = max(one_copy_s) <= NEARLY_EQUAL * min(one_copy_s)
    return (max(counts),) * len(counts) if equal else counts


def adaptive(
    sample: Callable[[], Sequence[float]], least: int, most: int, steady: float = STEADY
) -> tuple[tuple[float, ...], ...]:
    """Take samples of simultaneous flows: at least ``least``, then more until every flow is steady, or ``most``.

    sample: takes one sample, a time for each flow. Returns the samples of each flow.
    """
    rows: list[Sequence[float]] = []
    while len(rows) < least or (len(rows) < most and not _steady(rows, steady)):
        rows.append(sample())
    return tuple(zip(*rows, strict=True))


def _steady(rows: Sequence[Sequence[float]], steady: float) -> bool:
    spreads = [spread(column) for column in zip(*rows, strict=True)]
    return all(s.mad <= steady * s.median for s in spreads)


# Exceptions of programming errors; engines raise other types if a device is missing.
MISTAKES = (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, NameError, TypeError)


class NotOpened(Exception):
    """The engine cannot copy on this host, for a known reason. where: the device, empty for all of them."""

    def __init__(self, finding: Finding, where: str = "") -> None:
        super().__init__(f"{where}: {finding.why}" if where else finding.why)
        self.finding = finding


class NotTimed(Exception):
    """Copies began before all of them were queued, so their time would include the queueing. Data is not affected."""


class NotShared(Exception):
    """The driver gives out no memory by a fabric handle. code: of the call, cudaError_t."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class Watch(NamedTuple):
    """Where a run reports. step: gets text, number and count of each step; note: a line for people.

    answered: gets each step of which something came, and that. keep: the report as soon as it is made, of what was
    measured when a signal ends the run, too.
    """

    step: Callable[[str, int, int], None] = lambda *_: None
    note: Callable[[str], None] = lambda _: None
    answered: Callable[[Any, Any], None] = lambda *_: None
    keep: Callable[[Any], None] = lambda _: None


class CopyEngine(Protocol):
    """Copies between devices. Each device has two buffers of equal size: a source and a destination.

    A region counts from the start of a buffer. No method returns before the devices are done with it.
    Every method may raise exceptions of its library; the parent terminates a method that hangs.
    way: how the last copies were timed.
    """

    way: TimingWay

    def open(self, setup: Setup) -> Opened:
        """Make contexts and buffers. Raises ModuleNotFoundError, NotOpened, LookupError for a missing device."""

    def error_code(self, error: Exception) -> int | None:
        """Return the cudaError_t of this exception of the engine's library, None for any other exception."""

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Start all flows together, each with its number of consecutive copies of ``size`` bytes.

        Returns the seconds of each flow. Raises NotTimed.
        """

    def latency(self, flow: Flow, repeats: int) -> float:
        """Return seconds of one of ``repeats`` small copies, each started after the previous one. Raises NotTimed.

        sm-read: of one load by a kernel of the destination from the source's memory.
        """

    def fill(self, device: int, key: int, region: Region) -> None:
        """Write the pattern of this key into the source buffer."""

    def poison(self, device: int, value: int, region: Region) -> None:
        """Fill the region of the destination buffer with one word."""

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Copy the region from source to destination buffers, all flows together. Raises NotShared."""

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Compare the destination buffer with the pattern of this key, on its device."""

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        """Return words of the destination buffer, or of the source buffer, as the host reads them."""

    def device_seconds(self) -> float:
        """Return how long the devices have been busy, by the engine's clock."""

    def close(self) -> None:
        """Release all resources."""
