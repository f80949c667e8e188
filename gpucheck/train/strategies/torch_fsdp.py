"""PyTorch FSDP: parameters, gradients and optimizer state spread over the ranks, gathered when a layer is computed."""

from collections.abc import Iterator
from typing import Any

from gpucheck.processes.ranks.run_directory import RunDirectory
from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch import session
from gpucheck.train.torch.rank import build_model, open_rank, share
from gpucheck.train.torch.training import Training

STRATEGY = Strategy(
    framework="torch",
    name="fsdp",
    summary="fully sharded data parallel, one process a device",
    process_per_device=True,
    level="full",
    packages=("torch", "numpy"),
)


def run(spec: RankSpec, directory: RunDirectory, progress: Progress) -> RankReport:
    """Train this rank from rendezvous to report. Raises whatever torch raises."""
    rank = open_rank(spec, directory, progress, group=True)
    torch, options = rank.torch, rank.options
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    # The group that exists: for two ranks on one GPU init_device_mesh may make one on NCCL, which rejects them.
    mesh = DeviceMesh.from_group(torch.distributed.group.WORLD, rank.device.type)

    def make(progress: Progress, feed: Iterator[tuple[Any, Any]], record: str) -> Training:
        model = build_model(torch, options.model, options.seed, rank.device)
        progress.enter("broadcast")
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return Training(
            rank,
            progress,
            forward=model,
            parameters=list(model.parameters()),
            batches=feed,
            exchange=True,
            per_step=False,
            record=record,
        )

    answer = session.report(
        rank,
        {"one process with the entire batch": make},
        backend=rank.where.backend,
        parts=spec.processes,
        communication="inside forward (all-gather) and backward (all-gather, reduce-scatter), not measured separately",
    )
    return share(rank, answer, directory)
