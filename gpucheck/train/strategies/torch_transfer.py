"""Tensors moved between devices, in both directions and several sizes, every byte checked by the receiver and the host.

On a machine without GPUs the two devices are two buffers of host memory: that proves this test, and no link.
"""

import time
from functools import partial
from typing import Any

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import Rank
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import open_rank, synchronize
from gpucheck.train.transfer import FACTOR, POISON, Moved, copy_and_report

STRATEGIES = (
    Strategy(
        framework="torch",
        name="transfer",
        module=__name__,
        summary="checked copies between the devices, both directions",
        level="standard",
        packages=("torch", "numpy"),
        trains=False,
        precisions=("fp32",),
    ),
)


def transfer(spec: RankSpec, progress: Progress) -> RankReport:
    """Copy between every ordered pair of devices. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=False)
    words = "; two buffers of host memory stand for the devices" if rank.where.placement == "cpu" else ""
    return copy_and_report(rank, partial(_move, rank), words)


def _move(rank: Rank, from_place: int, to_place: int, pattern: Any, seed: int) -> Moved:
    torch, source, target = rank.torch, rank.devices[from_place], rank.devices[to_place]
    sent = torch.from_numpy(pattern).to(source)
    arrived = torch.full_like(sent, POISON, device=target)
    for device in (source, target):
        synchronize(torch, device)
    began = time.perf_counter()
    arrived.copy_(sent)
    for device in (source, target):
        synchronize(torch, device)
    seconds = time.perf_counter() - began
    there = torch.arange(len(pattern), dtype=torch.int64, device=target) * FACTOR + seed
    # torch enables peer access where the driver offers it (aten/src/ATen/cuda/PeerToPeerAccess.cpp).
    peers = torch.cuda.can_device_access_peer(source, target) if source != target else None
    return Moved(seconds, arrived.cpu().numpy(), bool((arrived != there).any()), peers)
