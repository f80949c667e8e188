"""The yardstick of a distributed run: the same training in one process, on the whole batch, without communication."""

import hashlib
import math
from typing import Any, NamedTuple

from gpucheck.train import data
from gpucheck.train.outcome import Reference
from gpucheck.train.progress import Progress
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.torch_common import build_model, build_optimizer, number, raw


class Course(NamedTuple):
    """A distributed run to be compared: the training set on its device, the parameters before and after."""

    images: Any
    labels: Any
    initial: list[Any]
    final: list[Any]


def compare(torch: Any, options: SmokeOptions, course: Course, progress: Progress) -> Reference:
    """Train from the same start in this process, on the device of the course's images, and compare the ends."""
    images, labels, initial, final = course
    device = images.device
    model = build_model(torch, options.seed, device)
    with torch.no_grad():
        for parameter, start in zip(model.parameters(), initial, strict=True):
            parameter.copy_(start)
    optimizer = build_optimizer(torch, model)
    order = data.Order(options.seed, data.TRAIN, options.batch_per_rank * options.world_size)
    fed = [hashlib.sha256() for _ in range(options.world_size)]
    loss = math.nan
    for step in range(1, options.steps + 1):
        progress.enter("reference", step)
        chosen = torch.from_numpy(order.batch(step)).to(device)
        batch, wanted = images[chosen], labels[chosen]
        for rank, sha in enumerate(fed):
            sha.update(raw(batch[rank :: options.world_size]))
            sha.update(raw(wanted[rank :: options.world_size]))
        optimizer.zero_grad()
        error = torch.nn.functional.cross_entropy(model(batch), wanted)
        error.backward()
        optimizer.step()
        loss = error.item()
    reached = [parameter.detach() for parameter in model.parameters()]
    apart, travelled = _largest_difference(final, reached), _largest_difference(initial, reached)
    return Reference(
        max_abs_difference=number(apart),
        max_relative_difference=number(apart / travelled),
        loss_last=number(loss),
        data_hashes=tuple(sha.hexdigest() for sha in fed),
    )


def _largest_difference(some: list[Any], others: list[Any]) -> float:
    """Largest absolute difference; NaN if there is one anywhere (max() would drop a NaN that does not come first)."""
    apart = [float((a - b).detach().abs().max()) for a, b in zip(some, others, strict=True)]
    return math.nan if any(map(math.isnan, apart)) else max(apart)
