"""The outside contract of ``gpucheck smoke``: results of runs that ended, failures of runs that did not, findings."""

from typing import Literal

import msgspec

from gpucheck.model.answer import Answer

SCHEMA = "gpucheck.smoke/2"
Placement = Literal["cpu", "shared-gpu", "mig", "gpus"]
FailureKind = Literal["hang", "died", "raised", "garbage", "missing-package", "no-device", "timeout-start", "timeout"]
Rejection = Literal["precision", "sum"]
# Variant in which the switch makes the sums: they may differ from call to call in the last bit (NVIDIA/nccl issues 1497
# and 2360).
NVLS = "nvls"
# Key of versions: the wheels with CUDA's libraries that tensorflow[and-cuda] installs. tensorflow alone is built for
# CUDA, does not install them, and then computes on the CPU.
CUDA_WHEELS = "CUDA wheels"


def check_name(framework: str, strategy: str) -> str:
    """``smoke-<strategy>`` for torch, ``smoke-<framework>-<strategy>`` for the others."""
    return f"smoke-{strategy}" if framework == "torch" else f"smoke-{framework}-{strategy}"


class SmokeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a healthy run, reported with the measured values.

    loss_fraction_max: last loss over first loss. A healthy run reaches 0.35 in 10 steps and 0.0001 in 40.
    accuracy_min: share of the held-out samples; guessing reaches 0.1, a healthy run 0.99 in 10 steps.
    parameter_tolerance: largest absolute difference between any parameter and its twin in the single-process reference.
    Two ranks sum the gradient of a batch in another order than one process does, which float32 rounding turns into
    1e-7 on CPUs, after 40 steps and after 2000; one rank that trains on other samples ends 0.1 away. Lower precisions
    round more: see ``gpucheck.train.spec``.
    straggler_ratio_max: compute time of the slowest rank over the fastest, in a fast step of each.
    memory_kept_max_bytes: how much more memory a second training may leave than the first.
    """

    loss_fraction_max: float = 0.5
    accuracy_min: float = 0.9
    parameter_tolerance: float = 1e-4
    straggler_ratio_max: float = 1.5
    memory_kept_max_bytes: int = 32 << 20


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """SHA-256 of every rank's state after a step, in rank order, as exchanged through the store.

    parameters: all parameters. gradients: all averaged gradients since the checkpoint before (None at step 0).
    optimizer: every tensor of the optimizer's state (None at step 0, before it has any).
    """

    step: int
    parameters: tuple[str, ...]
    gradients: tuple[str, ...] | None = None
    optimizer: tuple[str, ...] | None = None


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's comparison with one process that saw the whole batch. None stands for "not a number".

    name: what was compared. max_relative_difference: the largest difference over the largest distance any parameter
    travelled in training. data_hashes: what each rank should have been fed, in rank order, empty where one process
    feeds all devices. samples_per_s: of the single device, comparisons left out.
    """

    name: str = ""
    max_abs_difference: float | None
    max_relative_difference: float | None
    loss_last: float | None
    data_hashes: tuple[str, ...] = ()
    samples_per_s: float | None = None


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A second training from the same seed: SHA-256 of all parameters after the same step of the first and of it."""

    step: int
    first: str
    second: str


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One checked copy of a transfer test. wrong: bytes that differ from what was sent, first_wrong the first of them.

    damage: how the arrived differs (``none untouched zeros other``). checked_by: who compared. path: how the bytes
    went, from the library's status: ``peer access``, ``host memory``; None where both are the same memory.
    """

    source: str
    target: str
    bytes: int
    gb_s: float | None
    wrong: int
    first_wrong: int | None
    damage: str
    checked_by: tuple[str, ...]
    path: Literal["peer access", "host memory"] | None = None


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose loss was no number, and the first step at which."""

    rank: int
    step: int


class Miscommunication(msgspec.Struct, frozen=True, kw_only=True):
    """The first all-reduce whose result was not the average of what was sent.

    kind: ``dropped`` (a rank's contribution is missing), ``stale`` (an earlier one took its place) or ``wrong``.
    rank: whose contribution, or who received it where the contributions do not explain it.
    error: how far off, over the norm of what was sent.
    """

    step: int
    kind: Literal["dropped", "stale", "wrong"]
    rank: int
    error: float | None


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a run.

    samples_per_s: by rank, all but the first step; steps_per_s: of the slowest rank. steps_mad_percent: median absolute
    deviation of the compute time of a step, in percent of its median, of the rank where it is largest.
    single_samples_per_s: one device alone, on the whole batch.
    scaling_efficiency: all ranks together over as many single devices; None where there is nothing to compare.
    shares: of the time in steps, over all ranks: ``data forward backward communication optimizer`` (or
    ``compiled step`` where a framework makes all of it at once), together 1.
    straggler_ratio, slowest_rank: compute time of the slowest rank over the fastest, in a fast step of each.
    communication: how it was distinguished.
    """

    samples_per_s: tuple[float, ...]
    steps_per_s: float | None = None
    steps_mad_percent: float | None = None
    single_samples_per_s: float | None
    scaling_efficiency: float | None
    shares: dict[str, float]
    straggler_ratio: float | None
    slowest_rank: int | None
    communication: str


class SmokeResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A run that ended.

    placement: ``cpu`` (no GPU took part), ``shared-gpu`` (all ranks on one GPU), ``mig`` (one MIG instance a
    rank) or ``gpus`` (one GPU a rank);
    placement_reason: why, as text.
    loss_first, loss_last: mean over the ranks; None stands for "not a number".
    loss_digest: SHA-256 of all losses as they are: equal runs on equal devices have equal digests.
    gradients_differ_from_step: first step at which the averaged gradients were not bit-equal on all ranks.
    summed_steps: all-reduces whose sums were compared; miscommunication: the first that was not right.
    wrong_data_ranks: ranks that were fed other samples than planned.
    repeats: by rank. memory_kept_bytes: by rank. copies: of a transfer test, which has no training.
    seconds: by phase, the slowest rank; ``total`` is wall time from the start of the first rank to the end of the last.
    environment_removed: variables of the caller that could have changed the run and were kept from the ranks.
    transports, algorithms: what NCCL used, from its log: channels by kind, algorithms by collective (an empty name if
    the log names none); both empty without NCCL.
    """

    framework: str
    strategy: str
    variant: str = ""
    model: str
    precision: str = "fp32"
    data_source: str = "synthetic"
    backend: str
    placement: Placement
    placement_reason: str
    devices: tuple[str, ...]
    device_names: tuple[str | None, ...]
    bus_ids: tuple[str | None, ...]
    world_size: int
    steps: int
    batch_per_rank: int
    seed: int
    losses: tuple[float | None, ...]
    loss_first: float | None
    loss_last: float | None
    loss_digest: str | None = None
    not_a_number: tuple[Divergence, ...]
    accuracy: float | None
    held_out: int
    references: tuple[Reference, ...]
    limits: SmokeLimits
    checkpoints: tuple[Checkpoint, ...]
    gradients_hashed: bool = True
    gradients_differ_from_step: int | None
    summed_steps: int = 0
    miscommunication: Miscommunication | None = None
    wrong_data_ranks: tuple[int, ...]
    repeats: tuple[Repeat, ...] = ()
    memory_kept_bytes: tuple[int, ...] = ()
    copies: tuple[Copy, ...] = ()
    performance: Performance | None = None
    seconds: dict[str, float]
    rank_seconds: tuple[dict[str, float], ...]
    versions: dict[str, str | None]
    environment_removed: tuple[str, ...] = ()
    transports: dict[str, int] = {}
    algorithms: dict[str, tuple[str, ...]] = {}

    @property
    def trained(self) -> bool:
        return bool(self.losses)


class SmokeFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A training run that did not end as it should.

    kind: ``timeout-start`` (the ranks were still starting when the time was up) and ``timeout`` (they were still making
    steps) are no hang: nothing is known to be wrong. ``no-device``: the framework has no CPU form and found no GPU.
    rank, device, bus_id, step, phase: where; None if no single rank failed first or the rank had not got that far.
    detail: what was seen, one line. missing: the package, for ``missing-package``.
    signal: name of the signal that ended the rank, for ``died``. process_state: the kernel's one-letter state of a rank
    that hangs (``T`` stopped, ``D`` uninterruptible). rejected: what a rank found that it cannot train with.
    stack: the failing rank's stack, innermost call first. evidence: the other ranks, and the tail of the rank's output.
    """

    framework: str
    strategy: str
    variant: str = ""
    kind: FailureKind
    detail: str
    rank: int | None = None
    world_size: int
    device: str | None = None
    bus_id: str | None = None
    step: int | None = None
    steps: int
    phase: str | None = None
    missing: str | None = None
    signal: str | None = None
    process_state: str | None = None
    error_type: str | None = None
    rejected: Rejection | None = None
    stack: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    seconds: float
    environment_removed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return all that was seen."""
        return "\n".join((self.detail, self.signal or "", *self.evidence))


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as rules evaluate it.

    gpus: how many real GPUs the host has, from another source than the framework; None is "not known, or simulated".
    exhausted: a failure shows that something of the host is used up, or at a limit.
    """

    outcome: SmokeResult | SmokeFailure
    gpus: int | None = None
    exhausted: bool = False


def check_of(outcome: SmokeResult | SmokeFailure) -> str:
    return check_name(outcome.framework, outcome.strategy)


class SmokeReport(Answer, frozen=True, kw_only=True):
    """One run of the command. outcomes: of the trainings that were started."""

    schema: str = SCHEMA
    outcomes: tuple[SmokeResult | SmokeFailure, ...]
