"""Where a rank is: it sends a line on entering each phase, so that its place is known when it does not respond."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from gpucheck.model.smoke import Checkpoint, Copy, Placement, Reference, Repeat
from gpucheck.processes.ranks.rank import Sender

# In the order in which a rank goes through them; the second group repeats at every step. init is the rendezvous, device
# the first use of the GPU, connect the backend's own set-up (NCCL's communicator).
# A transfer test copies instead: its step is the number of the copy. TensorFlow compiles all into one step.
BEFORE = ("start", "import", "init", "device", "connect", "data", "broadcast")
STEP = ("load", "copy", "forward", "backward", "step", "allreduce", "optimizer", "check")
AFTER = ("reference", "repeat", "report", "done")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a rank in the run. entered: time.monotonic(), which all processes of one Linux system share."""

    phase: str
    step: int | None = None
    device: str | None = None
    bus_id: str | None = None
    entered: float = 0.0

    def order(self) -> tuple[int, int, int]:
        """Sorts positions by how far the rank has come: stage, step, phase. An unknown phase counts as the start."""
        if self.phase in STEP:
            return (1, self.step or 0, STEP.index(self.phase))
        if self.phase in AFTER:
            return (2, 0, AFTER.index(self.phase))
        return (0, 0, BEFORE.index(self.phase) if self.phase in BEFORE else 0)

    def describe(self, steps: int) -> str:
        """``step 3 of 40, allreduce`` or ``import``."""
        return self.phase if self.step is None else f"step {self.step} of {steps}, {self.phase}"


START = Position(phase="start")


class CpuQueue:
    """How long the thread that made this was ready to run and had no CPU. Source: Linux, scheduler statistics.

    The file stays open, so that a reading in the middle of a phase costs one call.
    """

    def __init__(self) -> None:
        self._file, self._before = -1, 0.0
        with suppress(OSError):  # a kernel without these statistics: nothing is known to have been waited for
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.since_last()

    def since_last(self) -> float:
        fields = os.pread(self._file, 100, 0).split() if self._file >= 0 else []
        before, self._before = self._before, int(fields[1]) / 1e9 if len(fields) > 1 else 0.0
        return self._before - before


class Progress:
    """The writing end, inside the rank. Also keeps the time spent in each phase, and how much of it the rank waited
    for a CPU that others had (waited).

    on_enter is called after the phase is on record: the hook by which tests make a rank fail at a known place.
    """

    def __init__(self, sender: Sender, on_enter: Callable[[str, int | None], None] | None = None) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.waited: defaultdict[str, float] = defaultdict(float)
        self._queue = CpuQueue()
        self.sender = sender
        self._on_enter = on_enter
        self._device: str | None = None
        self._bus_id: str | None = None
        self._phase = "start"
        self._entered = time.monotonic()

    def on_device(self, device: str, bus_id: str | None) -> None:
        self._device, self._bus_id = device, bus_id

    @contextmanager
    def booked(self, instead: str, phase: str) -> Iterator[None]:
        """Count what is done meanwhile to another phase: work of the test itself inside a phase of the training."""
        began = time.monotonic()
        self.waited[phase] += self._queue.since_last()
        yield
        seconds = time.monotonic() - began
        self.waited[instead] += self._queue.since_last()
        self.seconds[phase] -= seconds
        self.seconds[instead] += seconds

    def enter(self, phase: str, step: int | None = None) -> None:
        """Put on record that the rank is in this phase now."""
        now = time.monotonic()
        self.seconds[self._phase] += now - self._entered
        self.waited[self._phase] += self._queue.since_last()
        self._phase, self._entered = phase, now
        self._record(phase, step)

    def _record(self, phase: str, step: int | None) -> None:
        position = Position(phase=phase, step=step, device=self._device, bus_id=self._bus_id, entered=self._entered)
        self.sender.send("at", position)
        if self._on_enter is not None:
            self._on_enter(phase, step)

    def busy(self) -> float:
        """Return the seconds spent in training so far, without the comparisons."""
        return sum(self.seconds.get(phase, 0.0) for phase in STEP if phase != "check")


class Aside(Progress):
    """Progress of steps that are made a second time: on record as one phase with its step, booked apart."""

    def __init__(self, progress: Progress, phase: str) -> None:
        super().__init__(progress.sender)
        self._progress, self._aside = progress, phase

    def _record(self, phase: str, step: int | None) -> None:
        if phase == STEP[0]:
            self._progress.enter(self._aside, step)


def position_of(progress: bytes) -> Position:
    """Return the position that a rank sent; ``start`` if it has sent none yet."""
    try:
        return msgspec.json.decode(progress, type=Position)
    except msgspec.MsgspecError:
        return START


class RankDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that took part. name: the framework's. bus_id: of its GPU, as in sysfs; None on the CPU."""

    name: str
    model: str | None = None
    bus_id: str | None = None


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """One step's gradients as a rank sent them and got them back, as sums over them with random signs.

    A sum with fixed signs is linear: that of the average must be the average of the ranks' own. None stands for "not a
    number". norm: Euclidean norm of what was sent, which scales the rounding.
    """

    sent: tuple[float | None, ...]
    received: tuple[float | None, ...]
    norm: float | None


class RankReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report of one rank that finished.

    devices: its own; all of them for a process that drives several.
    losses: the rank's own loss at every step; None stands for "not a number".
    gradient_hashes: SHA-256 of the averaged gradients at every step, empty where gradients are spread over the ranks.
    data_hash: SHA-256 over every sample it was fed, in order.
    sums: by step, empty where the strategy has no all-reduce of its own to check.
    compute_seconds: by step, without communication and comparisons. memory_kept_bytes: what a second training left more
    than the first. communication: how the phase was distinguished. seconds: by phase; samples and samples_seconds cover
    all steps but the first, without the comparisons.
    """

    rank: int
    world_size: int
    model: str
    backend: str
    placement: Placement
    placement_reason: str
    devices: tuple[RankDevice, ...]
    losses: tuple[float | None, ...] = ()
    gradient_hashes: tuple[str, ...] = ()
    data_hash: str = ""
    data_source: str = "synthetic"
    sums: tuple[Sums, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    accuracy: float | None = None
    held_out: int = 0
    references: tuple[Reference, ...] = ()
    repeat: Repeat | None = None
    memory_kept_bytes: int | None = None
    copies: tuple[Copy, ...] = ()
    compute_seconds: tuple[float, ...] = ()
    communication: str = ""
    seconds: dict[str, float]
    samples: int = 0
    samples_seconds: float = 0.0
    versions: dict[str, str | None]
