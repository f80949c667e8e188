"""What a smoke test hands on: numbers from a run that ended, or where and how it failed to end. Unjudged."""

from typing import Literal

import msgspec

from gpucheck.train.spec import Limits

Placement = Literal["cpu", "shared-gpu", "gpus"]
FailureKind = Literal["hang", "died", "raised", "garbage", "missing-package", "timeout-start", "timeout"]


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

    max_relative_difference: the largest difference over the largest distance any parameter travelled in training.
    data_hashes: what each rank should have been fed, in rank order.
    """

    max_abs_difference: float | None
    max_relative_difference: float | None
    loss_last: float | None
    data_hashes: tuple[str, ...]


class RankReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rank that finished says.

    bus_id: PCI bus id of its GPU, as in sysfs; None on the CPU.
    losses: the rank's own loss at every step; None stands for "not a number".
    gradient_hashes: SHA-256 of the averaged gradients at every step.
    data_hash: SHA-256 over every sample it was fed, in order.
    seconds: by phase; samples and samples_seconds cover all steps but the first, without the comparisons.
    """

    rank: int
    world_size: int
    model: str
    backend: str
    placement: Placement
    placement_reason: str
    device: str
    device_name: str | None
    bus_id: str | None
    losses: tuple[float | None, ...]
    gradient_hashes: tuple[str, ...]
    data_hash: str
    checkpoints: tuple[Checkpoint, ...]
    accuracy: float | None
    held_out: int
    reference: Reference | None
    seconds: dict[str, float]
    samples: int
    samples_seconds: float
    versions: dict[str, str | None]


class Straying(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose loss was no number, and the first step at which."""

    rank: int
    step: int


class SmokeResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A training run that ended.

    placement: ``cpu`` (no GPU took part), ``shared-gpu`` (all ranks on one GPU) or ``gpus`` (one GPU a rank);
    placement_reason says why in words.
    loss_first, loss_last: mean over the ranks; None stands for "not a number".
    gradients_differ_from_step: first step at which the averaged gradients were not bit-equal on all ranks.
    wrong_data_ranks: ranks that were fed other samples than the plan says.
    samples_per_s: by rank, data, forward, backward, all-reduce and optimizer together, first step left out.
    seconds: by phase, the slowest rank; ``total`` is wall time from the start of the first rank to the end of the last.
    environment_removed: variables of the caller that could have changed the run and were kept from the ranks.
    """

    framework: str
    strategy: str
    model: str
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
    not_a_number: tuple[Straying, ...]
    accuracy: float | None
    held_out: int
    parameter_max_abs_difference: float | None
    parameter_max_relative_difference: float | None
    reference_loss_last: float | None
    limits: Limits
    checkpoints: tuple[Checkpoint, ...]
    gradients_differ_from_step: int | None
    wrong_data_ranks: tuple[int, ...]
    samples_per_s: tuple[float, ...]
    seconds: dict[str, float]
    rank_seconds: tuple[dict[str, float], ...]
    versions: dict[str, str | None]
    environment_removed: tuple[str, ...] = ()


class SmokeFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A training run that did not end as it should.

    kind: ``timeout-start`` (the ranks were still starting when the time was up) and ``timeout`` (they were still making
    steps) are no hang: nothing is known to be wrong.
    rank, device, bus_id, step, phase: where; None where no single rank is to blame or the rank had not got that far.
    detail: what was seen, one line. missing: the package, for ``missing-package``.
    signal: name of the signal that ended the rank, for ``died``. process_state: the kernel's one-letter state of a rank
    that hangs (``T`` stopped, ``D`` uninterruptible).
    stack: the failing rank's stack, innermost call first. evidence: the other ranks, and the tail of the rank's output.
    """

    framework: str
    strategy: str
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
    stack: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    seconds: float
    environment_removed: tuple[str, ...] = ()
