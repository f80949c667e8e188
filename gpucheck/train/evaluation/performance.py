"""Evaluate the speed of the ranks relative to each other, and the memory they kept. Pure."""

from collections.abc import Iterator

from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import Performance, SmokeResult
from gpucheck.train.evaluation.finding_text import describe_performance, finding


def evaluate_performance(result: SmokeResult) -> Iterator[Finding]:
    """Yield findings on a slow rank and on memory that a second training does not release."""
    if result.performance is not None and result.performance.straggler_ratio is not None:
        yield _pace(result, result.performance)
    if result.memory_kept_bytes:
        yield _memory(result)


def _pace(result: SmokeResult, measured: Performance) -> Finding:
    ratio, limit = measured.straggler_ratio or 0.0, result.limits.straggler_ratio_max
    slow = ratio > limit
    rank = measured.slowest_rank or 0
    bus_id = result.bus_ids[rank] if rank < len(result.bus_ids) else None
    return finding(
        result,
        f"rank {rank} on {result.devices[rank]} computes {ratio:.2f} times as long as the fastest"
        if slow
        else f"ranks compute equally fast: the slowest takes {ratio:.2f} times as long as the fastest",
        f"{limit:.3g} times or less",
        wrong="all ranks wait for the slowest in every step: a throttled or shared GPU, a starved CPU, a narrow link"
        if slow
        else "",
        fix="look for other processes (top, nvidia-smi), heat and power (gpucheck verify --level quick), and the "
        "rank's CPU binding; then repeat with: gpucheck smoke",
        cause="slow-rank",
        confidence="likely",
        verdict=Verdict.WARN,
        subject=f"gpu:{bus_id}" if slow and bus_id else None,
        evidence=tuple(describe_performance(measured)),
    )


def _memory(result: SmokeResult) -> Finding:
    kept, limit = max(result.memory_kept_bytes), result.limits.memory_kept_max_bytes
    much = kept > limit
    rank = result.memory_kept_bytes.index(kept)
    return finding(
        result,
        f"memory returned: a second training left {max(kept, 0) / 2**20:.1f} MiB more than the first"
        if not much
        else f"rank {rank} keeps {kept / 2**20:.1f} MiB more after a second training",
        f"{limit >> 20} MiB or less",
        wrong="memory that is not given back adds up until a long job runs out of it" if much else "",
        fix="repeat with: gpucheck smoke --steps 200; if it grows with the steps, move to the torch build that "
        "gpucheck stack resolve names",
        verdict=Verdict.WARN,
    )
