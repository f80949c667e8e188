"""Steps and their results, exchanged between parent and children as JSON."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gpucheck.model.compute import TORCH, TYPES, WAYS, FailureKind, Sample
from gpucheck.model.device import Device

Kind = Literal["matrix", "memory", "results", "rest"]
Phase = Literal["cold", "hot", "steps"]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to a child. small: sizes for CPUs."""

    device: Device
    parent_pid: int
    small: bool = False
    engine: str = TORCH


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    """The device as the engine found it. types: of matrices that it can multiply; rejected: others, with the reason.

    errors: error counters before the first step. memory_limit_c: at which the GPU slows down for its memory.
    without: ways through memory and kinds of operations that the engine does not have, so that no step uses them.
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
    without: tuple[str, ...] = ()


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

    cuda-error: CUDA returned an error while computing. defect: gpucheck or the framework failed. capability: of a
    device that the library could open.
    """

    kind: FailureKind
    detail: str
    step: str = ""
    capability: str | None = None


# One attention step and one reduction: in the type that training uses, where the device has it.
ATTENTION = ("bf16", "fp16", "fp32")
REDUCTION = "reduction-fp32"
# The time of one step on every GPU at once. HEAT_S: of all products together, which is what heats a GPU up.
MATRIX_S, HEAT_S, MEMORY_S, RESULTS_S, COLD_S = 3.0, 18.0, 1.5, 1.2, 0.3
CPU_S = 0.2
ALONE_S = 2.0
# Parts of a round of a burn-in. What they leave is for products of matrices, which heat most.
REST, MEMORY, HOT, PAUSES = 0.10, 0.06, 0.36, 0.10
LONGEST_S = 60.0  # of one step: limits are looked at after each. The protection of the GPU itself acts at once.
MOST_ALONE = 8  # a host on which more looks slow is slow as a whole


def not_tested(opened: Opened | None) -> tuple[str, ...]:
    """Return what only torch tests; nothing with torch."""
    return (*opened.rejected, *opened.without) if opened and opened.without else ()


def untested(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on what only torch tests."""
    return (f"not tested without torch: {', '.join(names)}",) if names else ()


def steps(
    types: Sequence[str], *, small: bool = False, without: Sequence[str] = (), round_s: float | None = None
) -> Iterator[ComputeStep]:
    """Yield the steps for devices with these types: results cold, rates under load, results hot, then with pauses.

    Repeated, with equal results, are products in every type, a reduction and an attention step.
    small: times for CPUs. without: as Opened.without. round_s: the time of a round of a burn-in, which rests first.
    """
    able, moved = [type_ for type_ in TYPES if type_ in types], [way for way in WAYS if way not in without]
    attention = [f"attention-{type_}" for type_ in ATTENTION if type_ in types][:1]
    operations = (*(f"matrix-{type_}" for type_ in able), REDUCTION, *attention)
    every = [operation for operation in operations if operation.partition("-")[0] not in without]
    cold, rest, memory, matrix = COLD_S, 0.0, MEMORY_S, max(MATRIX_S, HEAT_S / len(able))
    hot = pauses = RESULTS_S
    if small:
        cold = memory = matrix = hot = pauses = CPU_S
    if round_s is not None:
        rest, memory, hot, pauses = (part * round_s for part in (REST, MEMORY / len(moved), HOT / len(every), PAUSES))
        matrix = (round_s * (1 - REST - MEMORY - HOT - PAUSES) - cold * len(every)) / len(able)
    for step in (
        ComputeStep(kind="rest", what="to cool down", seconds=rest),
        *(ComputeStep(kind="results", what=what, seconds=cold, phase="cold") for what in every),
        *(ComputeStep(kind="memory", what=way, seconds=memory) for way in moved),
        *(ComputeStep(kind="matrix", what=type_, seconds=matrix) for type_ in able),
        *(ComputeStep(kind="results", what=what, seconds=hot, phase="hot") for what in every),
        ComputeStep(kind="results", what=every[-1], seconds=pauses, phase="steps"),
    ):
        pieces = math.ceil(step.seconds / LONGEST_S)  # none of a rest without time
        yield from (msgspec.structs.replace(step, seconds=step.seconds / pieces) for _ in range(pieces))
