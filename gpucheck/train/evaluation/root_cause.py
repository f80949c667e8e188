"""Identify the failing rank from how a run ended. Pure.

A failing rank makes the others raise or wait, so the first error observed is rarely the cause. What a peer cannot cause
comes first: a missing package, a signal from outside, an invalid report; then the earliest exception; then, if no rank
ended, the rank that is stopped, stuck in the kernel, or furthest behind.
"""

import re
import signal
from collections.abc import Iterator
from typing import Any

import msgspec

from gpucheck.knowledge.codes import Subject, known
from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import FailureKind, Performance, Rejection, SmokeFailure, SmokeResult
from gpucheck.printable import counted
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.ranks.nccl_log import error_text
from gpucheck.processes.ranks.supervisor import Ending, RankEnd
from gpucheck.processes.signals import signal_name
from gpucheck.train.progress import AFTER, BEFORE, Position, RankReport, position_of
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.strategies import check_name

# The finding about a run that did not use two GPUs: a name of its own, for the run's own findings may all pass.
PLACEMENT = "smoke-placement"
# What pip installs for a package that is imported by another name, or that needs CUDA libraries with it.
DISTRIBUTIONS = {"cupy": "cupy-cuda12x[ctk]", "tensorflow": "tensorflow[and-cuda]"}
# Of a code of wrong data between CPU ranks: GPUs and links are not suspected.
ON_CPU = "-on-cpu"


def check_of(outcome: SmokeResult | SmokeFailure) -> str:
    return check_name(outcome.framework, outcome.strategy)


def distribution(package: str) -> str:
    """Return what pip installs for a package that is missing."""
    return DISTRIBUTIONS.get(package, package)


def describe_ranks(result: SmokeResult) -> str:
    """``2 CPU ranks, gloo`` or ``2 ranks on cuda:0, cuda:1, nccl``; devices where one process drives all of them."""
    word = "rank" if len(result.rank_seconds) > 1 or result.world_size == 1 else "device"
    if result.placement == "cpu":
        return f"{counted(result.world_size, f'CPU {word}')}, {result.backend}"
    where = {"shared-gpu": "one GPU", "mig": "MIG instances"}.get(result.placement, ", ".join(result.devices))
    return f"{counted(result.world_size, word)} on {where}, {result.backend}"


def subject_of(result: SmokeResult) -> str:
    """The pair, the one GPU, or the host."""
    known = [bus_id for bus_id in dict.fromkeys(result.bus_ids) if bus_id is not None]
    if result.placement == "gpus" and len(known) == result.world_size == 2:
        return f"pair:{known[0]}-{known[1]}"
    return f"gpu:{known[0]}" if len(known) == 1 else "host"


def finding(
    result: SmokeResult,
    seen: str,
    wanted: str,
    code: str | None = None,
    *,
    verdict: Verdict = Verdict.FAIL,
    evidence: tuple[str, ...] = (),
    subject: str | None = None,
    explained: bool = False,
) -> Finding:
    """Return PASS without a code, else ``verdict``. explained: by another finding, so that no cause is suspected."""
    removed = tuple(f"kept from the ranks: {variable}" for variable in result.environment_removed)
    made = Subject(
        check=check_of(result),
        name=subject or subject_of(result),
        evidence=(*describe_placement(result), *evidence, *removed),
    )
    seen = f"{result.variant}: {seen}" if result.variant else seen
    if code is None:
        return made.passes(seen, wanted)
    code += ON_CPU if result.placement == "cpu" and known(code + ON_CPU) else ""
    return made.finding(verdict, code, seen, wanted, cause=None if explained else msgspec.UNSET)


def describe_placement(result: SmokeResult) -> Iterator[str]:
    yield f"{describe_ranks(result)}: {result.placement_reason}"
    if result.transports or result.algorithms:
        kinds = ", ".join(result.transports) or "transport not named"
        ways = "; ".join(f"{name or 'all collectives'} by {' and '.join(a)}" for name, a in result.algorithms.items())
        yield f"NCCL's log: {kinds}{f'; {ways}' if ways else ''}"


def describe_facts(result: SmokeResult) -> Iterator[str]:
    """What ran where, with what, and how fast: one fact a line."""
    yield from describe_placement(result)
    versions = [f"{name} {version}" for name, version in result.versions.items() if version]
    yield ", ".join([*filter(None, dict.fromkeys(result.device_names)), *versions])
    if result.trained:
        work = f"{result.model} in {result.precision}, {result.steps} steps of {result.batch_per_rank} samples a device"
        yield f"{work}, {result.data_source} data"
    if result.performance is not None:
        yield from describe_performance(result.performance)
    phases = (f"{phase} {seconds:.2f}" for phase, seconds in result.seconds.items() if seconds >= 0.005)
    yield f"seconds: {', '.join(phases)}"


def describe_performance(measured: Performance) -> Iterator[str]:
    """The figures, one fact a line."""
    names = (
        [f"rank {rank} " for rank in range(len(measured.samples_per_s))] if len(measured.samples_per_s) > 1 else [""]
    )
    rates = ", ".join(f"{name}{rate:.0f}" for name, rate in zip(names, measured.samples_per_s, strict=True))
    alone = f"; one device alone {measured.single_samples_per_s:.0f}" if measured.single_samples_per_s else ""
    efficiency = f"; scaling efficiency {measured.scaling_efficiency:.0%}" if measured.scaling_efficiency else ""
    yield f"samples/s: {rates}{alone}{efficiency}"
    if measured.shares:
        yield "step time: " + ", ".join(f"{name} {part:.0%}" for name, part in measured.shares.items())
    if measured.communication:
        yield f"communication: {measured.communication}"


def hashes(values: tuple[str, ...]) -> str:
    """``rank 0 1f3a..., rank 1 1f3b...``."""
    return ", ".join(f"rank {rank} {value[:12]}" for rank, value in enumerate(values))


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
        rejected=next((kind for kind in REJECTED if kind in kinds), None),
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


# Messages of CUDA, NCCL and the loader, with their meaning. First match wins.
# Sources: CUDA runtime error strings (cudaGetErrorString), NCCL troubleshooting guide.
DRIVER = "training.driver-mismatch"
SYMPTOMS = (
    (r"no kernel image is available", "training.no-code-for-gpu"),
    (r"system not yet initialized", "training.fabric-not-ready"),
    (r"unsupported display driver / cuda driver combination|driver on your system is too old", DRIVER),
    (r"driver version is insufficient|Driver/library version mismatch", DRIVER),
    (r"busy or unavailable", "training.gpu-exclusive"),
    (r"shared memory segment|/shm/|SIGBUS|[Bb]us error", "training.shared-memory-short"),
    (r"No space left on device|Disk quota exceeded|File too large|No usable temporary", "training.no-disk-space"),
    (r"uncorrectable ECC", "training.ecc-uncorrected"),
    (r"uncorrectable NVLink", "training.nvlink-failed"),
    # As torch, the CUDA runtime and NCCL print it.
    (
        r"(?i:cuda(?: driver)?(?: error:| failure)?(?: \d+)? '?out of memory)|CUBLAS_STATUS_ALLOC_FAILED",
        "training.gpu-memory-taken",
    ),
    (r"fallen off the bus|GPU is lost|unspecified launch failure", "training.gpu-silent"),
    (r"cannot open shared object file|undefined symbol|version `.*' not found", "training.library-mismatch"),
)
# What a rank found by itself before it trained.
REJECTED: dict[Rejection, str] = {
    "precision": "training.precision-unsupported",
    "sum": "training.sum-wrong",
}
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGXCPU", "SIGXFSZ")
# Something ran out or interfered on the host, or the time was up, so nothing is known of GPUs and framework.
UNTESTED = {
    "training.gpu-memory-taken",
    "training.shared-memory-short",
    "training.no-disk-space",
    "training.rank-killed",
    "training.rank-no-resources",
    "training.ranks-not-started",
}


def evaluate_failure(failure: SmokeFailure, gpus: int | None = None) -> Finding:
    """One finding: SKIP for a missing package, UNKNOWN if the time or the host's resources were too short, else FAIL.

    gpus: how many real GPUs the host has, None if that is not known or the hardware is simulated.
    """
    if failure.kind == "missing-package":
        return _missing(failure)
    if failure.kind == "no-device":
        return _no_device(failure, gpus or 0)
    code = _code(failure)
    unknown = failure.kind in ("timeout-start", "timeout") or code in UNTESTED
    where = (
        f"rank {failure.rank}{f' on {failure.device}' if failure.device else ''}, " if failure.rank is not None else ""
    )
    step = f"step {failure.step} of {failure.steps}, " if failure.step is not None else ""
    variant = f"{failure.variant}: " if failure.variant else ""
    removed = tuple(f"kept from the ranks: {variable}" for variable in failure.environment_removed)
    stack = tuple(f"stack: {frame}" for frame in failure.stack)
    subject = Subject(
        check=check_of(failure),
        name=f"gpu:{failure.bus_id}" if failure.bus_id else "host",
        evidence=(*failure.evidence, *stack, *removed),
    )
    seen = f"{variant}{failure.kind}: {where}in {step}{failure.phase}: {failure.detail}"
    wanted = f"{failure.world_size} ranks train {failure.steps} steps"
    return (subject.unknown if unknown else subject.fails)(code, seen, wanted)


def _missing(failure: SmokeFailure) -> Finding:
    package, framework = failure.missing or failure.framework, failure.framework
    values = {"strategy": failure.strategy, "package": package, "distribution": distribution(package)}
    seen, wanted = f"package {package} is not installed", f"{framework} in the environment of gpucheck"
    return Subject(check=check_of(failure)).skips("training.package-missing", seen, wanted, **values)


def _no_device(failure: SmokeFailure, gpus: int) -> Finding:
    subject, wanted = Subject(check=check_of(failure)), f"{failure.world_size} GPUs"
    if not gpus:
        return subject.skips("training.framework-needs-gpu", failure.detail, wanted, framework=failure.framework)
    seen = f"{failure.strategy} with {failure.framework} unknown: {failure.detail}"
    return subject.unknown(
        "training.framework-finds-no-gpu", seen, wanted, gpus=counted(gpus, "GPU"), framework=failure.framework
    )


def _code(failure: SmokeFailure) -> str:
    if failure.kind == "timeout":
        return "training.run-slow"
    if failure.rejected is not None:
        return REJECTED[failure.rejected]
    text = "\n".join((failure.detail, failure.signal or "", *failure.evidence))
    for pattern, code in SYMPTOMS:
        if re.search(pattern, text):
            return code
    if failure.kind == "died" and failure.signal in FROM_OUTSIDE:
        return "training.rank-killed"
    # Whatever it leads to: a rank that prints it may then crash, or wait for a thread that never started.
    if failure.error_type == "MemoryError" or exhausted(text):
        return "training.rank-no-resources"
    if failure.kind == "timeout-start":
        return "training.start-slow" if failure.rank is not None else "training.ranks-not-started"
    if failure.kind == "hang":
        return _hang(failure)
    if failure.kind == "died":
        return "training.rank-crashed"
    return "training.rank-unreadable" if failure.kind == "garbage" else "training.rank-raised"


def _hang(failure: SmokeFailure) -> str:
    if failure.process_state in ("T", "t"):
        return "training.rank-stopped"
    if failure.process_state == "D":
        return "training.rank-in-kernel"
    on_gpu = any("cuda:" in text for text in (failure.device or "", *failure.evidence))
    return "training.gpu-ranks-stuck" if on_gpu else "training.cpu-ranks-stuck"
