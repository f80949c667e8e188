"""Merge the reports of all ranks into one result. Pure."""

import hashlib
from statistics import fmean

from gpucheck.model.smoke import Divergence, SmokeResult
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.train.report import RankReport
from gpucheck.train.results.communication import first_miscommunication
from gpucheck.train.results.performance import performance
from gpucheck.train.spec import SmokeOptions


def merge(
    reports: tuple[RankReport, ...],
    options: SmokeOptions,
    seconds: float,
    removed: tuple[str, ...],
    taken: Taken = Taken(),  # noqa: B008 - immutable
) -> SmokeResult:
    """The result of a run whose ranks all finished; reports in rank order, rank 0's with the references.

    seconds: wall time of the whole. removed: environment variables that the ranks did not get. taken: from NCCL's log.
    """
    first = reports[0]
    planned = first.references[0].data_hashes if first.references else ()
    losses = tuple(_mean(step) for step in zip(*(report.losses for report in reports), strict=True))
    phases = {phase: None for report in reports for phase in report.seconds}
    slowest = {phase: round(max(r.seconds.get(phase, 0.0) for r in reports), 4) for phase in phases}
    devices = tuple(device for report in reports for device in report.devices)
    summed = all(report.sums for report in reports)
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
        not_a_number=tuple(_divergences(reports)),
        accuracy=first.accuracy,
        held_out=first.held_out,
        references=first.references,
        limits=options.limits,
        checkpoints=first.checkpoints,
        gradients_hashed=all(report.gradient_hashes for report in reports),
        gradients_differ_from_step=_first_difference(tuple(report.gradient_hashes for report in reports)),
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


def _mean(losses: tuple[float | None, ...]) -> float | None:
    numbers = [loss for loss in losses if loss is not None]
    return fmean(numbers) if len(numbers) == len(losses) else None


def _divergences(reports: tuple[RankReport, ...]) -> list[Divergence]:
    return [Divergence(rank=r.rank, step=r.losses.index(None) + 1) for r in reports if None in r.losses]


def _first_difference(hashes: tuple[tuple[str, ...], ...]) -> int | None:
    """Return the first step, from 1, at which the ranks' hashes differ."""
    for step, row in enumerate(zip(*hashes, strict=True), start=1):
        if len(set(row)) > 1:
            return step
    return None
