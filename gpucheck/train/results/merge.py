"""Merge the reports of all ranks into one result. Pure.

Was every all-reduce the average of what the ranks sent? Each rank keeps, by step, sums with fixed random signs over its
own gradients and over the averaged ones. Sums are linear, so the average of the ranks' sums is the sum of the average,
up to rounding. What breaks that names itself: the result without one rank's part is a contribution dropped, the result
with that rank's part of the step before is stale.
"""

import hashlib
import math
from collections.abc import Sequence
from itertools import chain
from statistics import fmean, median
from typing import Literal

from gpucheck.model.smoke import Divergence, Miscommunication, Performance, SmokeResult
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.train.progress import RankReport, Sums
from gpucheck.train.spec import SmokeOptions

# Share of the step -> the phases that belong to it.
SHARES = {
    "data": ("load",),
    "forward": ("forward",),
    "backward": ("backward",),
    "compiled step": ("step",),
    "communication": ("allreduce",),
    "optimizer": ("optimizer",),
}
LEAST_STEPS = 5  # for a spread
FEWEST_STEPS = 20  # with fewer, other work on the host may have slowed every step of one rank


def performance(reports: Sequence[RankReport], devices: int) -> Performance:
    """Reports in rank order, of a run with at least two steps; devices: how many took part."""
    rates = tuple(round(r.samples / r.samples_seconds, 1) if r.samples_seconds else 0.0 for r in reports)
    alone = next((ref.samples_per_s for r in reports for ref in r.references if ref.samples_per_s), None)
    # Two ranks that share a GPU take turns on it, and MIG instances and models differ: neither shows a slow device.
    unequal = (
        reports[0].placement in ("shared-gpu", "mig") or len({one.model for r in reports for one in r.devices}) > 1
    )
    ratio, slowest = straggler([] if unequal else [report.compute_seconds for report in reports])
    slowest_s = max((r.samples_seconds for r in reports), default=0.0)
    return Performance(
        samples_per_s=rates,
        steps_per_s=round((len(reports[0].losses) - 1) / slowest_s, 2) if slowest_s else None,
        steps_mad_percent=_spread([report.compute_seconds for report in reports]),
        single_samples_per_s=alone,
        scaling_efficiency=round(sum(rates) / (alone * devices), 3) if alone else None,
        shares=shares([report.seconds for report in reports]),
        straggler_ratio=round(ratio, 3) if ratio is not None else None,
        slowest_rank=slowest,
        communication=reports[0].communication,
    )


def _deviation(steps: Sequence[float]) -> float:
    middle = median(steps)
    return median(abs(step - middle) for step in steps) / middle


def _spread(by_rank: Sequence[Sequence[float]]) -> float | None:
    rest = [seconds[1:] for seconds in by_rank if len(seconds) > LEAST_STEPS]
    spreads = [_deviation(steps) for steps in rest if min(steps) > 0]
    return round(100 * max(spreads), 2) if spreads and len(spreads) == len(by_rank) else None


def shares(seconds: Sequence[dict[str, float]]) -> dict[str, float]:
    """What part of the time in steps went where, over all ranks; empty where no step was made.

    A phase without booked time is omitted: communication that was not measured apart is not communication of 0 %.
    """
    booked = {
        share: sum(rank.get(phase, 0.0) for rank in seconds for phase in phases)
        for share, phases in SHARES.items()
        if any(phase in rank for rank in seconds for phase in phases)
    }
    whole = sum(booked.values())
    return {share: round(value / whole, 4) for share, value in booked.items()} if whole > 0 else {}


def straggler(by_rank: Sequence[Sequence[float]]) -> tuple[float | None, int | None]:
    """Compute time of the slowest rank over the fastest, and which is the slowest; None with one rank or few steps.

    Of each rank one of its fastest steps (a tenth of them are faster), the first step left out: other work on the host
    makes some steps of any rank longer, a slow device makes all of one rank's.
    """
    if len(by_rank) < 2 or min(map(len, by_rank)) <= FEWEST_STEPS:
        return None, None
    typical = [sorted(steps[1:])[len(steps) // 10] for steps in by_rank]
    if min(typical) <= 0:
        return None, None
    return max(typical) / min(typical), typical.index(max(typical))


# Of the norm of what was sent. float32 addition over two to eight ranks stays below 1e-7 of it; one lost contribution
# is about half of it.
TOLERANCE = 1e-4


def first_miscommunication(by_rank: Sequence[Sequence[Sums]]) -> Miscommunication | None:
    """The first step and rank whose average is not that of what all ranks sent; by_rank[rank][step - 1]."""
    before: Sequence[Sums] = ()
    for step, row in enumerate(zip(*by_rank, strict=True), start=1):
        found = _step(step, row, before)
        if found is not None:
            return found
        before = row
    return None


def _step(step: int, row: Sequence[Sums], before: Sequence[Sums]) -> Miscommunication | None:
    sent = [_floats(sums.sent) for sums in row]
    scale = math.hypot(*_floats([sums.norm for sums in row]))
    if not math.isfinite(scale) or any(map(math.isnan, chain(*sent))):
        return None  # a gradient that is NaN or infinite is the loss's finding, and nothing can be compared
    for rank, sums in enumerate(row):
        received, wanted = _floats(sums.received), _mean_of(sent)
        if not _is_near(received, wanted, TOLERANCE * scale):
            kind, guilty = _explain(received, sent, before, TOLERANCE * scale, rank)
            apart = [abs(a - b) for a, b in zip(received, wanted, strict=True)]
            error = max(apart) / scale if scale and all(map(math.isfinite, apart)) else None
            return Miscommunication(step=step, kind=kind, rank=guilty, error=error)
    return None


def _explain(
    received: list[float], sent: list[list[float]], before: Sequence[Sums], allowed: float, receiver: int
) -> tuple[Literal["dropped", "stale", "wrong"], int]:
    nothing, earlier = [0.0] * len(received), [_floats(sums.sent) for sums in before]
    for rank in range(len(sent)):
        if _is_near(received, _mean_of([*sent[:rank], nothing, *sent[rank + 1 :]]), allowed):
            return "dropped", rank
        if before and _is_near(received, _mean_of([*sent[:rank], earlier[rank], *sent[rank + 1 :]]), allowed):
            return "stale", rank
    if before and _is_near(received, _floats(before[receiver].received), allowed):
        return "stale", receiver
    return "wrong", receiver


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _mean_of(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _is_near(some: Sequence[float], others: Sequence[float], allowed: float) -> bool:
    """Whether all are equal up to rounding; "not a number" is near nothing."""
    return all(abs(a - b) <= allowed for a, b in zip(some, others, strict=True))


def merge(
    reports: tuple[RankReport, ...],
    options: SmokeOptions,
    seconds: float,
    removed: tuple[str, ...],
    taken: Taken,
) -> SmokeResult:
    """The result of a run whose ranks all finished; reports in rank order, rank 0's with the references.

    seconds: wall time of the whole. removed: environment variables that the ranks did not get. taken: from NCCL's log.
    """
    first = reports[0]
    planned = first.references[0].data_hashes if first.references else ()
    by_step = zip(*(report.losses for report in reports), strict=True)
    losses = tuple(None if None in step else fmean(step) for step in by_step)
    phases = {phase: None for report in reports for phase in report.seconds}
    slowest = {phase: round(max(r.seconds.get(phase, 0.0) for r in reports), 4) for phase in phases}
    devices = tuple(device for report in reports for device in report.devices)
    summed = all(report.sums for report in reports)
    hashed = zip(*(report.gradient_hashes for report in reports), strict=True)
    return SmokeResult(
        framework=options.framework,
        strategy=options.strategy,
        variant=options.variant,
        model=first.model,
        precision=options.precision,
        data_source=first.data_source,
        backend=first.backend,
        placement=first.placement,
        placement_reason=first.placement_reason,
        devices=tuple(device.name for device in devices),
        device_names=tuple(device.model for device in devices),
        bus_ids=tuple(device.bus_id for device in devices),
        world_size=len(devices),
        steps=options.steps,
        batch_per_rank=options.batch_per_rank,
        seed=options.seed,
        losses=losses,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        loss_digest=hashlib.sha256(repr(losses).encode()).hexdigest() if losses else None,
        not_a_number=tuple(Divergence(rank=r.rank, step=r.losses.index(None) + 1) for r in reports if None in r.losses),
        accuracy=first.accuracy,
        held_out=first.held_out,
        references=first.references,
        limits=options.limits,
        checkpoints=first.checkpoints,
        gradients_hashed=all(report.gradient_hashes for report in reports),
        gradients_differ_from_step=next((step for step, row in enumerate(hashed, start=1) if len(set(row)) > 1), None),
        summed_steps=len(first.sums) if summed else 0,
        miscommunication=first_miscommunication([report.sums for report in reports]) if summed else None,
        wrong_data_ranks=tuple(
            report.rank
            for report, wanted in zip(reports, planned or [r.data_hash for r in reports], strict=True)
            if report.data_hash != wanted
        ),
        repeats=tuple(report.repeat for report in reports if report.repeat is not None),
        memory_kept_bytes=tuple(r.memory_kept_bytes for r in reports if r.memory_kept_bytes is not None),
        copies=first.copies,
        performance=performance(reports, len(devices)) if losses else None,
        seconds={**slowest, "total": round(seconds, 3)},
        rank_seconds=tuple({phase: round(s, 4) for phase, s in report.seconds.items()} for report in reports),
        versions=first.versions,
        environment_removed=removed,
        transports=taken.transports,
        algorithms=taken.algorithms,
    )
