"""What a smoke test is asked for, and what each of its ranks is told. Plain values, passed as JSON."""

from typing import Literal

import msgspec

FaultKind = Literal["hang", "die", "stop", "raise", "garbage", "noise", "flip-bit", "freeze", "data-order", "nan"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """For tests of the smoke test itself: what goes wrong in which rank, on entering which phase of which step.

    rank: None is every rank. freeze (learning rate 0) and data-order hold for the whole run, flip-bit and nan for one
    step; the others act on entering the phase, in that step if one is given. No command line option leads here.
    """

    kind: FaultKind
    rank: int | None = 1
    phase: str = "forward"
    step: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a healthy run keeps, stated in the result beside what was measured.

    loss_fraction_max: last loss over first loss. A healthy run reaches 0.35 in 10 steps and 0.0001 in 40.
    accuracy_min: share of the held-out samples; guessing reaches 0.1, a healthy run 0.99 in 10 steps.
    parameter_tolerance: largest absolute difference between any parameter and its twin in the single-process reference.
    Two ranks sum the gradient of a batch in another order than one process does, which float32 rounding turns into
    1e-7 on CPUs, after 40 steps and after 2000; one rank that trains on other samples ends 0.1 away.
    """

    loss_fraction_max: float = 0.5
    accuracy_min: float = 0.9
    parameter_tolerance: float = 1e-4


MIN_STEPS = 10


class SmokeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One smoke test.

    steps: optimizer steps, 10 or more (fewer cannot show that the loss falls).
    timeout_s: the whole run, from the start of the first rank; enforced from outside the ranks.
    stall_s: once every rank trains, the longest that all of them together may go without entering a new phase.
    check_every: parameters and optimizer state are compared across ranks after every that many steps, and at the end.
    fault: for tests only.
    """

    framework: Literal["torch"] = "torch"
    strategy: Literal["ddp"] = "ddp"
    world_size: int = 2
    steps: int = 40
    batch_per_rank: int = 64
    seed: int = 20240229
    check_every: int = 5
    timeout_s: float = 60.0
    stall_s: float = 30.0
    limits: Limits = Limits()
    fault: Fault | None = None


def fault_of(options: SmokeOptions, rank: int) -> Fault | None:
    """The fault that this rank is to have."""
    fault = options.fault
    return fault if fault is not None and fault.rank in (None, rank) else None


class RankSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank is told.

    program: importable module whose ``run(spec, progress)`` is the training of one rank and returns its report.
    supervisor_pid: the process that started it; the rank never outlives it.
    """

    rank: int
    program: str
    supervisor_pid: int
    options: SmokeOptions
