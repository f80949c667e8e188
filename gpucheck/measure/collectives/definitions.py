"""Size and bandwidth of each collective, as NVIDIA/nccl-tests doc/PERFORMANCE.md defines them. Pure functions.

Algorithm bandwidth is size over time. Bus bandwidth multiplies it by a factor that makes it comparable with the link
rate for any number of ranks; this is exact for rings, but not if the switch reduces the data (NVLS).
"""

from typing import NamedTuple


class Collective(NamedTuple):
    """counts: which bytes the size counts. share: part of a rank's buffer that one rank contributes, 1/n or all."""

    name: str
    counts: str
    per_rank: bool


ALL = {
    c.name: c
    for c in (
        Collective("all_reduce", "the buffer on each rank", per_rank=False),
        Collective("all_gather", "the whole output on each rank", per_rank=True),
        Collective("reduce_scatter", "the whole input on each rank", per_rank=True),
        Collective("broadcast", "the buffer", per_rank=False),
        Collective("all_to_all", "the whole buffer on each rank", per_rank=True),
        Collective("send_recv", "the buffer, passed on around a ring", per_rank=False),
    )
}


def bus_factor(name: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth. Raises LookupError for an unknown collective."""
    if name not in ALL:
        raise LookupError(f"unknown collective {name!r}; known: {', '.join(ALL)}")
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if ALL[name].per_rank else 1.0


def elements(size_bytes: int, ranks: int, element_bytes: int = 4) -> int:
    """Return the elements of a buffer of about this size, a multiple of the ranks and at least one per rank."""
    return max(1, size_bytes // element_bytes // ranks) * ranks


def value(rank: int, index: int, number: int) -> int:
    """Return the value of ``rank`` at ``index`` in round ``number``: small, so that sums of floats are exact."""
    return (rank + 1) * ((index + number) % 7 + 1)
