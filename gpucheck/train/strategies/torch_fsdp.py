"""PyTorch FSDP: parameters, gradients and optimizer state spread over the ranks, gathered when a layer is computed."""

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import ONE_PROCESS
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import build_model, open_rank
from gpucheck.train.torch.training import Wrapped, report

STRATEGY = Strategy(
    framework="torch",
    name="fsdp",
    summary="fully sharded data parallel, one process a device",
    process_per_device=True,
    level="full",
    packages=("torch", "numpy"),
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Train this rank from rendezvous to report. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=True)
    torch, options = rank.torch, rank.options
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    # The group that exists: for two ranks on one GPU init_device_mesh may make one on NCCL, which rejects them.
    mesh = DeviceMesh.from_group(torch.distributed.group.WORLD, rank.device.type)

    def wrap(progress: Progress) -> Wrapped:
        model = build_model(torch, options.model, options.seed, rank.device)
        progress.enter("broadcast")
        for layer in (*(one for one in model if any(True for _ in one.parameters())), model):
            fully_shard(layer, mesh=mesh)
        return Wrapped(model, model)

    words = "inside forward (all-gather) and backward (all-gather, reduce-scatter), not measured separately"
    return report(rank, {ONE_PROCESS: wrap}, communication=words)
