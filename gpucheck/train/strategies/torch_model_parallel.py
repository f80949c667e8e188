"""Model parallel: the layers split over the devices, activations moved between them; then as a pipeline.

The pipeline feeds each batch in micro-batches, so that on GPUs one stage works on the next part while the other still
has the last. Both must reach what one device reaches.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import Strategy
from gpucheck.train.torch.rank import build_layers, open_rank
from gpucheck.train.torch.training import Wrapped, report

STRATEGY = Strategy(
    framework="torch",
    name="model-parallel",
    summary="layers split over the devices, then the same as a pipeline of micro-batches",
    process_per_device=False,
    level="full",
    packages=("torch", "numpy"),
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
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
            f"one device, pipeline of {options.micro_batches} micro-batches": partial(wrap, options.micro_batches),
        },
        communication="inside forward and backward (activations and their gradients), not measured separately",
    )


def split(torch: Any, layers: list[Any], devices: tuple[Any, ...]) -> list[Any]:
    """One stage a device, each of as many of the layers with parameters as the others. More devices than those: fewer
    stages.
    """
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
