"""Identify the failing rank from how a run ended. Pure.

A failing rank makes the others raise or wait, so the first error observed is rarely the cause. What a peer cannot cause
comes first: a missing package, a signal from outside, an invalid report; then the earliest exception; then, if no rank
ended, the rank that is stopped, stuck in the kernel, or furthest behind.
"""

import signal
from typing import Any, get_args

from gpucheck.model.smoke import FailureKind, Rejection, SmokeFailure
from gpucheck.processes.ranks.nccl_log import error_text
from gpucheck.processes.ranks.supervisor import Ending, RankEnd
from gpucheck.processes.signals import signal_name
from gpucheck.train.progress import AFTER, BEFORE, Position, RankReport, position_of
from gpucheck.train.spec import SmokeOptions

# Younger than this when the time was up, the newest phase means "slow", not "stuck". Starting has longer phases:
# torch's first import from a cold network disk, the first CUDA context of a large host.
STARTING_IS_SLOW_S = 10.0
STEPPING_IS_SLOW_S = 2.0
# On a busy machine a step takes seconds: a rank that stepped before is stuck only after so many of its own steps.
STUCK_STEPS, PACE_FROM_STEP = 5, 5
HELD = {
    "T": "stopped by a signal (SIGSTOP)",
    "t": "stopped by a debugger",
    "D": "in a system call that cannot be interrupted",
}
STACK_FRAMES = 12
MESSAGE_LINES = 8
Rank = RankEnd[RankReport]


def find_failing_rank(ending: Ending[RankReport], options: SmokeOptions, removed: tuple[str, ...]) -> SmokeFailure:
    kind, failing, detail = _verdict(ending, options)
    position = _at(failing) if failing else min((_at(e) for e in ending.ranks), key=lambda p: p.order())
    status = failing.status or 0 if failing else 0
    kinds = {error.kind for _, error in ending.errors}
    return failed(
        options,
        removed,
        kind=kind,
        detail=detail,
        rank=failing.rank if failing else None,
        device=position.device if failing else None,
        bus_id=position.bus_id if failing else None,
        step=position.step,
        phase=position.phase,
        missing=failing.error.missing if failing and failing.error and kind == "missing-package" else None,
        signal=signal_name(-status) if kind == "died" and status < 0 else None,
        process_state=failing.process_state if failing else None,
        error_type=failing.error.type if failing and failing.error and kind == "raised" else None,
        rejected=next((kind for kind in get_args(Rejection) if kind in kinds), None),
        stack=_stack(failing)[:STACK_FRAMES] if failing else (),
        evidence=_evidence(ending, options, failing),
        seconds=round(ending.seconds, 3),
    )


def failed(
    options: SmokeOptions, removed: tuple[str, ...], *, phase: str | None = "start", seconds: float = 0.0, **seen: Any
) -> SmokeFailure:
    """Return the failure of a run with these options. seen: the other fields of it."""
    return SmokeFailure(
        framework=options.framework,
        strategy=options.strategy,
        variant=options.variant,
        world_size=options.world_size,
        steps=options.steps,
        phase=phase,
        seconds=seconds,
        environment_removed=removed,
        **seen,
    )


def _verdict(ending: Ending[RankReport], options: SmokeOptions) -> tuple[FailureKind, Rank | None, str]:
    ranks = ending.ranks
    for rank in ranks:
        if rank.error and rank.error.missing:
            return "missing-package", rank, f"{rank.error.type}: {error_text(rank.error.message)}"
        if rank.error and rank.error.kind == "no-device":
            return "no-device", rank, error_text(rank.error.message)
    # NCCL's watchdog ends its process with SIGABRT when a peer fails: a cause only if no rank raised.
    raised = ending.errors
    for rank in ranks:
        if rank.status and not rank.error and not (rank.status == -signal.SIGABRT and raised):
            return "died", rank, _died(rank.status)
    for rank in ranks:
        if rank.unreadable:
            return "garbage", rank, rank.unreadable
    if raised:
        first, error = raised[0]
        return "raised", first, f"{error.type}: {error_text(error.message)}".removesuffix(": ")
    return _hanging(ending, options)


def _died(status: int) -> str:
    return f"ended by {signal_name(-status)}" if status < 0 else f"ended with exit status {status} and no word"


def _hanging(ending: Ending[RankReport], options: SmokeOptions) -> tuple[FailureKind, Rank | None, str]:
    # All ranks may have ended just as the time was up.
    running = [rank for rank in ending.ranks if rank.status is None] or list(ending.ranks)
    after = f"after {ending.seconds:.0f} s"
    for letter, state in HELD.items():
        for rank in running:
            if rank.process_state == letter:
                return "hang", rank, state
    behind = min(running, key=lambda r: _at(r).order())
    age = ending.ended - max(_at(rank).entered for rank in running)
    if ending.reason == "deadline":
        phase, starting = _at(behind).phase, _at(behind).phase in BEFORE
        if options.framework == "tensorflow" and _at(behind).step == 1:
            return "timeout-start", behind, f"still compiling its first step {after}"
        if starting and (phase in ("start", "import") or age < STARTING_IS_SLOW_S):
            return "timeout-start", behind, f"still in {phase} {after}"
        if not starting and age < max(STEPPING_IS_SLOW_S, STUCK_STEPS * _pace(ending, running)):
            return "timeout", None, f"still at work {after}: {_at(behind).describe(options.steps)}"
    waiting = f"no rank moved for {age:.0f} s"
    if len({_at(rank).order() for rank in running}) == 1 and len(running) > 1:
        return "hang", None, f"{waiting}: all {len(running)} ranks are in {_at(behind).describe(options.steps)}"
    return "hang", behind, f"{waiting}, and this rank is behind the others"


def _pace(ending: Ending[RankReport], running: list[Rank]) -> float:
    """Return the seconds that a step took on average, start included; 0 if too few were made to know."""
    newest = max((_at(rank) for rank in running), key=lambda position: position.entered)
    step = newest.step or 0
    return (newest.entered - (ending.ended - ending.seconds)) / step if step >= PACE_FROM_STEP else 0.0


def _stack(rank: Rank) -> tuple[str, ...]:
    return rank.error.frames if rank.error else rank.stack


def _evidence(ending: Ending[RankReport], options: SmokeOptions, failing: Rank | None) -> tuple[str, ...]:
    lines = []
    for rank in ending.ranks:
        line = f"rank {rank.rank} ({_at(rank).device or 'no device yet'}): {_state(rank, ending, options)}"
        stack = _stack(rank)
        lines.append(f"{line}; {stack[0]}" if stack else line)
    for rank in ending.ranks if failing is None else (failing,):
        lines += [f"rank {rank.rank} printed: {line}" for line in rank.output]
    if failing and failing.error:
        lines += [f"message: {line}" for line in failing.error.message.strip().splitlines()[1:MESSAGE_LINES]]
    lines += [f"NCCL warned: {warning}" for warning in ending.taken.warnings]
    lines += [f"rank {rank} could not be ended, not even by SIGKILL" for rank in ending.unkillable]
    lines += [ending.shortage] if ending.shortage else []
    return tuple(lines)


def _state(rank: Rank, ending: Ending[RankReport], options: SmokeOptions) -> str:
    where = _at(rank).describe(options.steps)
    if rank.status is None:
        since = f" for {ending.ended - _at(rank).entered:.1f} s" if _at(rank).entered else ""
        return f"{where}{since}, process state {rank.process_state}"
    if rank.error:
        return f"{where}, raised {rank.error.type}: {error_text(rank.error.message)}"
    if rank.unreadable:
        return f"{where}, {rank.unreadable}"
    return f"{where}, {_died(rank.status)}" if rank.status else f"finished ({AFTER[-1]})"


def _at(rank: Rank) -> Position:
    return position_of(rank.progress)
