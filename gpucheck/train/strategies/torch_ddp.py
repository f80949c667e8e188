"""PyTorch DistributedDataParallel: one rank a device, gradients averaged while the backward pass still runs.

The same code runs on GPUs (NCCL), on one shared GPU and on CPUs (gloo). torch is imported inside the functions.
"""

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import ONE_PROCESS
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import build_model, open_rank
from gpucheck.train.torch.training import Averaging, Wrapped, report

STRATEGY = Strategy(
    framework="torch",
    name="ddp",
    summary="DistributedDataParallel, one process a device",
    process_per_device=True,
    level="standard",
    packages=("torch", "numpy"),
    default=True,
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Train this rank from rendezvous to report. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=True)
    torch, options = rank.torch, rank.options

    def wrap(progress: Progress) -> Wrapped:
        # Every rank starts elsewhere, so that equal parameters after the broadcast are DDP's work and no coincidence.
        model = build_model(torch, options.model, options.seed + spec.rank, rank.device)
        progress.enter("broadcast")
        # Full with the last layer, whose gradients then travel while the others are computed; with one bucket for a
        # small model nothing could overlap.
        bucket_bytes = sum(4 * parameter.numel() for parameter in model[-1].parameters())
        wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_bytes / (1 << 20))
        averaging = Averaging(rank, progress)
        # A lambda: torch insists on its own annotations or on none.
        wrapped.register_comm_hook(None, lambda _state, bucket: averaging.average(bucket))
        return Wrapped(wrapped, model, averaging)

    hidden = "" if rank.where.backend == "gloo" else ", what was hidden behind the backward pass not timed"
    return report(rank, {ONE_PROCESS: wrap}, communication=f"all-reduce that the rank waited for{hidden}")
