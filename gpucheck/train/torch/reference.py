"""The reference of a distributed run: the same training on one device, on the entire batch, without communication."""

import hashlib
import math
import time
from typing import Any, NamedTuple

from gpucheck.model.smoke import Reference
from gpucheck.train import data
from gpucheck.train.torch import common
from gpucheck.train.torch.common import number, raw
from gpucheck.train.torch.loader import batches
from gpucheck.train.torch.rank import Rank
from gpucheck.train.torch.training import FP16_SCALE


class Single(NamedTuple):
    """Training on one device: the parameters before and after, the last loss, what each rank should have been fed."""

    initial: list[Any]
    reached: list[Any]
    loss_last: float
    data_hashes: tuple[str, ...]
    samples_per_s: float


def train_alone(rank: Rank, initial: list[Any], steps: int, parts: int) -> Single:
    """Train from the same start in this process, on its first device. parts: ranks that the batches were split over."""
    torch, options, device = rank.torch, rank.options, rank.device
    model = common.load(torch, common.build_model(torch, options.model, options.seed, device), initial)
    optimizer = common.build_optimizer(torch, model.parameters(), options.model)
    order = global_order(rank, options.seed)
    fed = [hashlib.sha256() for _ in range(parts)]
    scale = FP16_SCALE if options.precision == "fp16" else 1.0
    loss, busy = math.nan, 0.0
    whole = [order.batch(step) for step in range(1, steps + 1)]
    feed = batches(torch, rank.samples, whole, device)
    for step in range(1, steps + 1):
        rank.progress.enter("reference", step)
        began = time.monotonic()
        batch, wanted = next(feed)
        optimizer.zero_grad()
        with common.autocast(torch, device, options.precision):
            error = torch.nn.functional.cross_entropy(model(batch), wanted)
        (error * scale).backward()
        for parameter in model.parameters() if scale != 1.0 else ():
            parameter.grad.div_(scale)
        optimizer.step()
        loss = error.item()
        busy += time.monotonic() - began if step > 1 else 0.0
        for part, sha in enumerate(fed):
            sha.update(raw(batch[part::parts]))
            sha.update(raw(wanted[part::parts]))
    return Single(
        initial=initial,
        reached=[parameter.detach() for parameter in model.parameters()],
        loss_last=loss,
        data_hashes=tuple(sha.hexdigest() for sha in fed),
        samples_per_s=(steps - 1) * len(whole[0]) / busy,
    )


def global_order(rank: Rank, seed: int) -> data.Order:
    """The plan of samples that all ranks share."""
    options = rank.options
    return data.Order(seed, len(rank.samples.labels), options.batch_per_rank * options.world_size)


def compare(single: Single, final: list[Any], name: str) -> Reference:
    """Compare the distributed run's parameters with those of the single device."""
    final = [value.to(other.device) for value, other in zip(final, single.reached, strict=True)]
    apart = _largest_difference(final, single.reached)
    travelled = _largest_difference(
        [v.to(o.device) for v, o in zip(single.initial, final, strict=True)], single.reached
    )
    return Reference(
        name=name,
        max_abs_difference=number(apart),
        max_relative_difference=number(apart / travelled) if travelled else None,
        loss_last=number(single.loss_last),
        data_hashes=single.data_hashes,
        samples_per_s=round(single.samples_per_s, 1),
    )


def _largest_difference(some: list[Any], others: list[Any]) -> float:
    """Largest absolute difference; NaN if there is one anywhere (max() would drop a NaN that does not come first)."""
    apart = [float((a - b).detach().abs().max()) for a, b in zip(some, others, strict=True)]
    return math.nan if any(map(math.isnan, apart)) else max(apart)
