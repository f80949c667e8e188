"""From a strategy's training to its report: train, compare with one device, train again, look at the memory."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpucheck.model.smoke import Reference, Repeat
from gpucheck.train import data
from gpucheck.train.data import DataSet
from gpucheck.train.progress import Aside, Progress, RankReport
from gpucheck.train.spec import fault_of
from gpucheck.train.torch.rank import (
    Rank,
    accuracy,
    autocast,
    build_model,
    build_optimizer,
    load,
    memory_in_use,
    number,
    raw,
    share,
    versions,
)
from gpucheck.train.torch.training import FP16_SCALE, Training, Wrapped


class Samples:
    """The training set as torch's loader wants it; a whole batch at a time."""

    def __init__(self, samples: DataSet) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples.labels)

    def __getitems__(self, chosen: list[int]) -> tuple[Any, Any]:
        return self._samples.images[chosen], self._samples.labels[chosen]


class Together:
    """Turn a batch of numpy arrays into tensors,"""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __call__(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        return self._torch.from_numpy(batch[0]), self._torch.from_numpy(batch[1])


def batches(torch: Any, samples: DataSet, plan: list[Any], device: Any) -> Iterator[tuple[Any, Any]]:
    """(images, labels) on the device for each step of the plan, a list of arrays of sample numbers."""
    on_gpu = device.type == "cuda"
    loader = torch.utils.data.DataLoader(
        Samples(samples), batch_sampler=plan, collate_fn=Together(torch), pin_memory=on_gpu
    )
    for images, labels in loader:
        yield images.to(device, non_blocking=on_gpu), labels.to(device, non_blocking=on_gpu)


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
    model = load(torch, build_model(torch, options.model, options.seed, device), initial)
    optimizer = build_optimizer(torch, model.parameters(), options.model)
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
        with autocast(torch, device, options.precision):
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


Wrap = Callable[[Progress], Wrapped]
# What a strategy with several ranks is compared with.
ONE_PROCESS = "one process with the entire batch"


def report(rank: Rank, wraps: dict[str, Wrap], *, communication: str, more: str = "") -> RankReport:
    """Run the trainings of a strategy and return the results; over several hosts, those of all ranks.

    wraps: by name, the first is the one that is reported in full; each is compared with one device.
    more: added to the reason of the placement.
    """
    options, progress = rank.options, rank.progress
    parts = rank.spec.processes if rank.group else 1  # over which every batch is split
    first, *others = wraps

    def train(name: str, record: str, progress: Progress, steps: int) -> Training:
        made = Training(rank, progress, wraps[name](progress), _feed(rank, steps, parts), record)
        made.run(steps)
        return made

    training = train(first, "first", progress, options.steps)
    initial, finals = training.initial, {first: training.final()}
    for name in others:
        again = train(name, name, Aside(progress, "repeat"), options.steps)
        finals[name] = again.final()
        del again
    progress.enter("reference")
    references: tuple[Reference, ...] = ()
    learned = None
    if rank.spec.rank == 0:
        single = train_alone(rank, initial, options.steps, parts)
        references = tuple(compare(single, final, name) for name, final in finals.items())
        model = build_model(rank.torch, options.model, options.seed, rank.device)
        load(rank.torch, model, finals[first])
        learned = accuracy(rank.torch, model, rank.samples, rank.device)
        del single, model
    kept = _kept(training)
    del training, initial, finals
    # Train the first steps twice more: the parameters must be those of the first time, and no memory may be lost.
    checkpoint, own = kept["checkpoints"][1], rank.spec.rank if rank.group else 0
    reached, in_use = "", []
    for nth in (1, 2):
        again = train(first, f"repeat-{nth}", Aside(progress, "repeat"), checkpoint.step)
        reached = again.checkpoints[-1].parameters[own]
        del again
        in_use.append(memory_in_use(rank.torch, rank.device))
    progress.enter("report")
    made = RankReport(
        rank=rank.spec.rank,
        world_size=rank.spec.processes,
        model=options.model,
        backend=rank.where.backend if rank.group else "torch copies",
        placement=rank.where.placement,
        placement_reason=rank.where.reason + more,
        devices=rank.described,
        data_source=options.data or "synthetic",
        accuracy=learned,
        held_out=len(rank.samples.held_out_labels),
        references=references,
        repeat=Repeat(step=checkpoint.step, first=checkpoint.parameters[own], second=reached),
        memory_kept_bytes=in_use[1] - in_use[0],
        communication=communication,
        seconds=dict(progress.seconds),
        samples=(options.steps - 1) * options.batch_per_rank * (options.world_size // rank.spec.processes),
        versions=versions(rank.torch),
        **kept,
    )
    return share(rank, made)


def _kept(training: Training) -> dict[str, Any]:
    return {
        "losses": tuple(training.losses),
        "gradient_hashes": tuple(training.gradients),
        "data_hash": training.fed.hexdigest(),
        "sums": tuple(training.sums),
        "checkpoints": tuple(training.checkpoints),
        # If communication was not measured apart, waiting for a slow rank looks like computing.
        "compute_seconds": tuple(training.compute_seconds) if training.sums else (),
        "samples_seconds": training.seconds,
    }


def _feed(rank: Rank, steps: int, parts: int) -> Iterator[tuple[Any, Any]]:
    options, fault = rank.options, fault_of(rank.options, rank.spec.rank)
    seed = options.seed + (1 if fault is not None and fault.kind == "data-order" else 0)
    order = global_order(rank, seed)
    plan = [order.shard(step, rank.spec.rank if parts > 1 else 0, parts) for step in range(1, steps + 1)]
    return batches(rank.torch, rank.samples, plan, rank.device)
