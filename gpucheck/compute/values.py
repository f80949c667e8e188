"""Steps and their results, exchanged between parent and children as JSON."""

from typing import Literal

import msgspec

from gpucheck.model.compute import Sample
from gpucheck.model.device import Device

Kind = Literal["matrix", "memory", "results", "rest"]
Phase = Literal["cold", "hot", "steps"]
FailureKind = Literal[
    "missing-package", "not-started", "no-process", "no-memory", "no-resources", "stuck", "crashed", "cuda-error",
    "defect",
]  # fmt: skip


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to a child. small: sizes for CPUs."""

    device: Device
    parent_pid: int
    small: bool = False


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """The device as the engine found it. types: of matrices that it can multiply; rejected: others, with the reason.

    errors: error counters before the first step. memory_limit_c: at which the GPU slows down for its memory.
    """

    types: tuple[str, ...]
    capability: str | None = None
    multiprocessors: int | None = None
    memory_bus_bits: int | None = None
    memory_clock_mhz: float | None = None
    memory_limit_c: float | None = None
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    rejected: dict[str, str] = msgspec.field(default_factory=dict)
    errors: dict[str, int] = msgspec.field(default_factory=dict)


class ComputeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One request. what: the type of a matrix, the way through memory, or the operation that is repeated; a rest has no
    load. seconds: of load. phase: of repeated operations, cold at the start, hot after load, or with pauses that make
    the power step up and down.
    """

    kind: Kind
    what: str
    seconds: float
    phase: Phase = "hot"

    @property
    def label(self) -> str:
        """Return its name for progress and failures."""
        return f"{self.kind} {self.what}" + (f" ({self.phase})" if self.kind == "results" else "")


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The result of one step. rates: of matrices in operations per second, of memory in bytes per second, by sample.

    digests: of results, one a repeat; values: computed values that each digest covers.
    samples: readings meanwhile, at: since the start of the step. errors: counters at its end.
    """

    rates: tuple[float, ...] = ()
    digests: tuple[str, ...] = ()
    values: int = 0
    samples: tuple[Sample, ...] = ()
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    seconds: float = 0.0


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A step or a start without a result. stuck: the deadline passed. crashed: a signal ended the process.

    cuda-error: CUDA returned an error while computing. defect: gpucheck or the framework failed.
    """

    kind: FailureKind
    detail: str
    step: str = ""
