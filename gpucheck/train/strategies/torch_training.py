"""The ways in which torch trains on several devices. torch is imported inside the functions.

``ddp``: gradients averaged while the backward pass still runs. ``fsdp``: parameters, gradients and optimizer state
spread over the ranks, gathered when a layer is computed. Both run on GPUs (NCCL), on one shared GPU and on CPUs (gloo).

``dp``: one process copies the model to every device, scatters each batch and gathers the answers. Torch's own class
works between different GPUs only. On one GPU and on CPUs the same four steps (replicate, scatter, apply, gather) are
made with plain tensor operations, and the report states that: the run tests the arithmetic and this test, not torch's
class.

``model-parallel``: the layers split over the devices, activations moved between them; then as a pipeline. The pipeline
feeds each batch in micro-batches, so that on GPUs one stage works on the next part while the other still has the last.
Both must reach what one device reaches.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import ONE_DEVICE, ONE_PROCESS
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import autocast, build_layers, build_model, open_rank
from gpucheck.train.torch.training import Averaging, Wrapped, report

MICRO_BATCHES = 4
_torch = partial(Strategy, framework="torch", module=__name__, packages=("torch", "numpy"))
STRATEGIES = (
    _torch(
        name="ddp",
        summary="DistributedDataParallel, one process a device",
        process_per_device=True,
        level="standard",
        default=True,
    ),
    _torch(name="fsdp", summary="fully sharded data parallel, one process a device", process_per_device=True),
    _torch(name="dp", summary="DataParallel, one process: replicate, scatter, gather"),
    _torch(
        name="model-parallel", summary="layers split over the devices, then the same as a pipeline of micro-batches"
    ),
)


def ddp(spec: RankSpec, progress: Progress) -> RankReport:
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


def fsdp(spec: RankSpec, progress: Progress) -> RankReport:
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


def dp(spec: RankSpec, progress: Progress) -> RankReport:
    """Train, and compare with one device. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=False)
    torch, options = rank.torch, rank.options
    real = rank.where.placement == "gpus"

    def wrap(progress: Progress) -> Wrapped:
        model = build_model(torch, options.model, options.seed, rank.device)
        progress.enter("broadcast")
        lowered = in_every_thread(torch, model, options.precision)
        forward = torch.nn.DataParallel(lowered, list(rank.devices)) if real else four_steps(torch, model, rank.devices)
        return Wrapped(forward, model)

    return report(
        rank,
        {ONE_DEVICE: wrap},
        communication="inside forward (scatter, replicate, gather) and backward (reduce), not measured separately",
        more="" if real else "; torch's DataParallel needs two GPUs, so its four steps ran as plain tensor operations",
    )


def in_every_thread(torch: Any, model: Any, precision: str) -> Any:
    """Return the same layers, run in this precision whatever the thread.

    DataParallel has a thread for each replica and hands on that autocast is enabled, not its type, which is a thread's
    own: a replica would compute in fp16 in place of bf16 (torch/nn/parallel/parallel_apply.py).
    """

    class Lowered(torch.nn.Sequential):  # type: ignore[misc]
        def forward(self, images: Any) -> Any:
            with autocast(torch, images.device, precision):
                return super().forward(images)

    return Lowered(*model)


def four_steps(torch: Any, model: Any, devices: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Replicate, scatter, apply, gather: gradients flow back through the copies and add up in the one model."""

    def forward(images: Any) -> Any:
        parts = images.chunk(len(devices))
        replicas = [{name: p.to(d).clone() for name, p in model.named_parameters()} for d in devices]
        answers = [
            torch.func.functional_call(model, replica, (part.to(device),))
            for replica, part, device in zip(replicas, parts, devices, strict=False)
        ]
        return torch.cat([answer.to(devices[0]) for answer in answers])

    return forward


def model_parallel(spec: RankSpec, progress: Progress) -> RankReport:
    """Train twice, whole batches and micro-batches, and compare both with one device. Raises whatever torch raises."""
    rank = open_rank(spec, progress, group=False)
    torch, options = rank.torch, rank.options

    def wrap(micro_batches: int, _: Progress) -> Wrapped:
        stages = split(torch, build_layers(torch, options.model, options.seed), rank.devices)
        forward = staged(torch, stages, rank.devices, micro_batches)
        return Wrapped(forward, torch.nn.Sequential(*stages))

    return report(
        rank,
        {
            f"one device, layers split over {len(rank.devices)}": partial(wrap, 1),
            f"one device, pipeline of {MICRO_BATCHES} micro-batches": partial(wrap, MICRO_BATCHES),
        },
        communication="inside forward and backward (activations and their gradients), not measured separately",
    )


def split(torch: Any, layers: list[Any], devices: tuple[Any, ...]) -> list[Any]:
    """One stage a device, each of as many of the layers with parameters as the others; none without such a layer."""
    heavy = [number for number, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    count = min(len(devices), len(heavy))
    cuts = [0, *(heavy[len(heavy) * stage // count] for stage in range(1, count)), len(layers)]
    return [
        torch.nn.Sequential(*layers[begin:end]).to(device)
        for begin, end, device in zip(cuts, cuts[1:], devices, strict=False)
    ]


def staged(torch: Any, stages: list[Any], devices: tuple[Any, ...], micro_batches: int) -> Callable[[Any], Any]:
    """Through all stages; with micro-batches, in the order of a pipeline's clock."""

    def forward(images: Any) -> Any:
        parts = list(images.chunk(micro_batches))
        # At every tick each stage has another part: the last stages first, so that their devices are busy already.
        for tick in range(len(parts) + len(stages) - 1):
            for stage in reversed(range(len(stages))):
                if 0 <= tick - stage < len(parts):
                    parts[tick - stage] = stages[stage](parts[tick - stage].to(devices[stage]))
        return torch.cat(parts).to(devices[0])

    return forward
