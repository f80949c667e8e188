"""PyTorch DataParallel: one process copies the model to every device, scatters each batch and gathers the answers.

Torch's own class works between different GPUs only. On one GPU and on CPUs the same four steps (replicate, scatter,
apply, gather) are made with plain tensor operations, and the report states that: the run tests the arithmetic and this
test, not torch's class.
"""

from collections.abc import Callable
from typing import Any

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import ONE_DEVICE
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import autocast, build_model, open_rank
from gpucheck.train.torch.training import Wrapped, report

STRATEGY = Strategy(
    framework="torch",
    name="dp",
    summary="DataParallel, one process: replicate, scatter, gather",
    process_per_device=False,
    level="full",
    packages=("torch", "numpy"),
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
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
