"""Tensors moved between devices, in both directions and several sizes, every byte checked by the receiver and the host.

On a machine without GPUs the two devices are two buffers of host memory: that proves this test, and no link.
"""

import time
from functools import partial

from gpucheck.model.smoke import Copy
from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import Rank, open_rank, raw, synchronize, versions
from gpucheck.train.transfer import FACTOR, POISON, checked, copies

STRATEGY = Strategy(
    framework="torch",
    name="transfer",
    summary="checked copies between the devices, both directions",
    process_per_device=False,
    level="standard",
    packages=("torch", "numpy"),
    trains=False,
    precisions=("fp32",),
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Copy between every ordered pair of devices. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=False)
    made = tuple(copies(progress, [str(device) for device in rank.devices], partial(_copy, rank)))
    progress.enter("report")
    words = "; two buffers of host memory stand for the devices" if rank.where.placement == "cpu" else ""
    return RankReport(
        rank=0,
        world_size=1,
        model="none",
        backend="torch copies",
        placement=rank.where.placement,
        placement_reason=rank.where.reason + words,
        devices=rank.described,
        copies=made,
        seconds=dict(progress.seconds),
        versions=versions(rank.torch),
    )


def _copy(rank: Rank, pair: tuple[int, int], names: tuple[str, str], size: int, seed: int) -> Copy:
    torch = rank.torch
    source, target = rank.devices[pair[0]], rank.devices[pair[1]]
    # Unique by place and by copy: what was sent before, or belongs elsewhere, cannot pass for what was sent now.
    pattern = torch.arange(size // 8, dtype=torch.int64) * FACTOR + seed
    sent = pattern.to(source)
    arrived = torch.full_like(pattern, POISON).to(target)
    for device in (source, target):
        synchronize(torch, device)
    began = time.perf_counter()
    arrived.copy_(sent)
    for device in (source, target):
        synchronize(torch, device)
    seconds = time.perf_counter() - began
    # By the receiver against a pattern generated there, then by the host, which reads what the receiver has.
    there = torch.arange(size // 8, dtype=torch.int64, device=target) * FACTOR + seed
    differs = bool((arrived != there).any())
    # torch enables peer access where the driver offers it (aten/src/ATen/cuda/PeerToPeerAccess.cpp).
    peers = torch.cuda.can_device_access_peer(source, target) if source != target else None
    arrived_bytes, sent_bytes = bytes(raw(arrived)), bytes(raw(pattern))
    return checked(names, seconds, arrived_bytes, sent_bytes, differs=differs, peers=peers)
