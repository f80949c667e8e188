"""Options of the ranks and the values that they report, exchanged as JSON files."""

from typing import Literal

import msgspec

from gpucheck.processes.ranks import run_directory as ranks
from gpucheck.processes.ranks.nodes import Nodes

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


class Measured(msgspec.Struct, frozen=True, kw_only=True):
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
    measured: tuple[Measured, ...]
