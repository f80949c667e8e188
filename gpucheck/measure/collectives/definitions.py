"""What size and bandwidth mean for each collective, as NVIDIA/nccl-tests doc/PERFORMANCE.md defines them. Pure.

Algorithm bandwidth is size over time. Bus bandwidth is that times a factor which makes it comparable with the speed of
the links, whatever the number of ranks; exactly so for rings, and not where the switch adds up (NVLS).
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
    """Bus bandwidth over algorithm bandwidth. Raises LookupError for a collective that is not known."""
    if name not in ALL:
        raise LookupError(f"no collective is called {name!r}; there are {', '.join(ALL)}")
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if ALL[name].per_rank else 1.0


def elements(size_bytes: int, ranks: int, element_bytes: int = 4) -> int:
    """Elements of a buffer of about this size that divide among the ranks; at least one each."""
    return max(1, size_bytes // element_bytes // ranks) * ranks


def value(rank: int, index: int, number: int) -> int:
    """What rank ``rank`` contributes at ``index`` in round ``number``: small, so that sums of floats are exact."""
    return (rank + 1) * ((index + number) % 7 + 1)
