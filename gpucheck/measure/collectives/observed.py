"""Measurements of ranks on GPUs as observations. Pure."""

from collections.abc import Mapping, Sequence

from gpucheck.measure.collectives.definitions import ALL
from gpucheck.measure.collectives.launch import Ended
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.diagnosis.observations import Collective, Hang, Measured


def measured(
    runs: Mapping[str, Ended], results: Sequence[CollectiveResult], gpus: int, *, several_hosts: bool
) -> Measured:
    """Return a row for each result. gpus: GPUs of this host, one per rank.

    Only the largest size has a bandwidth, and only if the network between hosts was not used.
    """
    largest = max((result.size_bytes for result in results), default=0)
    rows = tuple(
        Collective(
            op=result.operation,
            ranks=runs[result.variant].ranks,
            bytes=result.size_bytes,
            busbw_gb_s=result.busbw_gb_s if result.size_bytes == largest and not several_hosts else None,
            transport=_transport(runs[result.variant], result),
            wrong=result.wrong if result.checked else None,
        )
        for result in results
    )
    hung = next((ended for ended in runs.values() if ended.reason == "deadline"), None)
    hang = Hang(op=_stuck_in(hung), gpus=tuple(range(gpus))) if hung is not None else None
    return Measured(collectives=rows, hang=hang)


def _transport(ended: Ended, result: CollectiveResult) -> str | None:
    """Return the slowest transport of NCCL's channels; NVLS if a switch reduced the all_reduce."""
    chosen = ended.taken.algorithms.get("AllReduce", ())
    if result.operation == "all_reduce" and any(algorithm.startswith("NVLS") for algorithm in chosen):
        return "NVLS"
    kinds = sorted(ended.taken.transports)
    return next((kind for start in ("NET", "SHM", "P2P") for kind in kinds if kind.startswith(start)), None)


def _stuck_in(ended: Ended) -> str | None:
    """Return the collective that the first rank was in."""
    names = [step.split()[0] for _, step in sorted(ended.where.items()) if step.split()]
    return next((name for name in names if name in ALL), None)
