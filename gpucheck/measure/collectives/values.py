"""Options of the ranks and the values that they report, exchanged as JSON; sizes and bandwidths of collectives.

As NVIDIA/nccl-tests doc/PERFORMANCE.md defines them: algorithm bandwidth is size over time. Bus bandwidth multiplies it
by a factor that makes it comparable with the link rate for any number of ranks; this is exact for rings, but not if the
switch reduces the data (NVLS).
"""

from typing import Literal

import msgspec

from gpucheck.processes.ranks import rank as ranks
from gpucheck.processes.ranks.nodes import Nodes

# Name -> whether one rank contributes 1/n of the bytes that the size counts; otherwise all of them.
ALL = {
    "all_reduce": False,  # counts the buffer on each rank
    "all_gather": True,  # the whole output on each rank
    "reduce_scatter": True,  # the whole input on each rank
    "broadcast": False,  # the buffer
    "all_to_all": True,  # the whole buffer on each rank
    "send_recv": False,  # the buffer, passed on around a ring
}


def bus_factor(name: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth. Raises LookupError for an unknown collective."""
    if name not in ALL:
        raise LookupError(f"unknown collective {name!r}; known: {', '.join(ALL)}")
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if ALL[name] else 1.0


def elements(size_bytes: int, ranks: int, element_bytes: int = 4) -> int:
    """Return the elements of a buffer of about this size, a multiple of the ranks and at least one per rank."""
    return max(1, size_bytes // element_bytes // ranks) * ranks


# The failed operation: the collective; the program; memory, disk or open files; access to the GPU.
ErrorKind = Literal["collective", "defect", "no-resources", "no-device"]


class RankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run. bus_ids: of the GPUs by local rank, empty on CPUs. nodes: None on one host.

    iterations: collectives in one sample; samples: each of them with one checked collective before it.
    """

    backend: Literal["nccl", "gloo"]
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    bus_ids: tuple[str, ...] = ()
    nodes: Nodes | None = None
    warm_ups: int = 5
    iterations: int = 20
    samples: int = 7
    timeout_s: float = 60.0


RankSpec = ranks.RankSpec[RankOptions]


class MeasuredCollective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one size. seconds: mean per sample, of the slowest rank. wrong: elements of all ranks."""

    operation: str
    size: int
    seconds: tuple[float, ...] = ()
    checked: int = 0
    wrong: int = 0


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a rank that finished. The results are the same in all ranks."""

    rank: int
    world_size: int
    device: str
    device_name: str | None
    versions: dict[str, str | None]
    measured: tuple[MeasuredCollective, ...]
