"""How fast a run was, from the seconds that its ranks booked. Pure."""

from collections.abc import Sequence
from statistics import fmean, median

from gpucheck.model.smoke import Performance
from gpucheck.train.report import RankReport

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
    # Two ranks that share a GPU take turns on it, and MIG instances differ in size: neither shows a slow device.
    shared = reports[0].placement in ("shared-gpu", "mig")
    ratio, slowest = straggler([] if shared else [report.compute_seconds for report in reports])
    slowest_s = max((r.samples_seconds for r in reports), default=0.0)
    overlaps = [report.overlap for report in reports if report.overlap is not None]
    return Performance(
        samples_per_s=rates,
        steps_per_s=round((len(reports[0].losses) - 1) / slowest_s, 2) if slowest_s else None,
        steps_mad_percent=_spread([report.compute_seconds for report in reports]),
        single_samples_per_s=alone,
        scaling_efficiency=round(sum(rates) / (alone * devices), 3) if alone else None,
        shares=shares([report.seconds for report in reports]),
        straggler_ratio=round(ratio, 3) if ratio is not None else None,
        slowest_rank=slowest,
        overlap=round(fmean(overlaps), 3) if overlaps else None,
        communication=reports[0].communication,
    )


def _deviation(steps: Sequence[float]) -> float:
    middle = median(steps)
    return median(abs(step - middle) for step in steps) / middle


def _spread(by_rank: Sequence[Sequence[float]]) -> float | None:
    """Return the largest spread of the steps of a rank, in percent, the first step left out; None with few steps."""
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
