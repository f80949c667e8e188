"""From a strategy's training to its report: train, compare with one device, train again, look at the memory."""

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from gpucheck.model.smoke import Reference, Repeat
from gpucheck.train.progress import Aside, Progress
from gpucheck.train.report import RankReport
from gpucheck.train.spec import fault_of
from gpucheck.train.torch import common, reference
from gpucheck.train.torch.loader import batches
from gpucheck.train.torch.rank import Rank
from gpucheck.train.torch.training import Training

# (progress, batches, name of the run) -> a training that is ready to run
Make = Callable[[Progress, Iterator[tuple[Any, Any]], str], Training]


def report(
    rank: Rank, makes: dict[str, Make], *, backend: str, parts: int, communication: str, reason: str = ""
) -> RankReport:
    """Run the trainings of a strategy and return the results.

    makes: by name, the first is the one that is reported in full; each is compared with one device.
    parts: ranks that every batch is split over.
    """
    options, progress = rank.options, rank.progress
    first, *others = makes
    training = makes[first](progress, _feed(rank, options.steps, parts), "first")
    training.run(options.steps)
    initial, finals = training.initial, {first: training.final()}
    for name in others:
        again = makes[name](Aside(progress, "repeat"), _feed(rank, options.steps, parts), name)
        again.run(options.steps)
        finals[name] = again.final()
        del again
    progress.enter("reference")
    references: tuple[Reference, ...] = ()
    accuracy = None
    if rank.spec.rank == 0:
        single = reference.train_alone(rank, initial, options.steps, parts)
        references = tuple(reference.compare(single, final, name) for name, final in finals.items())
        model = common.build_model(rank.torch, options.model, options.seed, rank.device)
        common.load(rank.torch, model, finals[first])
        accuracy = common.accuracy(rank.torch, model, rank.samples, rank.device)
        del single, model
    kept = _kept(training)
    del training, initial, finals
    repeat, memory = _again(rank, makes[first], parts, kept["checkpoints"])
    progress.enter("report")
    return RankReport(
        rank=rank.spec.rank,
        world_size=rank.spec.processes,
        model=options.model,
        backend=backend,
        placement=rank.where.placement,
        placement_reason=reason or rank.where.reason,
        devices=rank.described,
        data_source=options.data or "synthetic",
        accuracy=accuracy,
        held_out=len(rank.samples.held_out_labels),
        references=references,
        repeat=repeat,
        memory_kept_bytes=memory,
        communication=communication,
        seconds=dict(progress.seconds),
        samples=(options.steps - 1) * options.batch_per_rank * (options.world_size // rank.spec.processes),
        versions=common.versions(rank.torch),
        **kept,
    )


def _kept(training: Training) -> dict[str, Any]:
    return {
        "losses": tuple(training.losses),
        "gradient_hashes": tuple(training.gradients),
        "data_hash": training.fed.hexdigest(),
        "sums": tuple(training.sums),
        "checkpoints": tuple(training.checkpoints),
        # If communication was not measured apart, waiting for a slow rank looks like computing.
        "compute_seconds": tuple(training.compute_seconds) if training.sums else (),
        "overlap": fmean(training.overlaps) if training.overlaps else None,
        "samples_seconds": training.seconds,
    }


def _again(rank: Rank, make: Make, parts: int, checkpoints: Any) -> tuple[Repeat, int]:
    """Train the first steps twice more: the parameters must be those of the first time, and no memory may be lost."""
    checkpoint, own = checkpoints[1], rank.spec.rank if rank.spec.processes > 1 else 0
    step, in_use, reached = checkpoint.step, [], ""
    for number in (1, 2):
        training = make(Aside(rank.progress, "repeat"), _feed(rank, step, parts), f"repeat-{number}")
        training.run(step)
        reached = training.checkpoints[-1].parameters[own]
        del training
        in_use.append(common.memory_in_use(rank.torch, rank.device))
    return Repeat(step=step, first=checkpoint.parameters[own], second=reached), in_use[1] - in_use[0]


def _feed(rank: Rank, steps: int, parts: int) -> Iterator[tuple[Any, Any]]:
    """This rank's part of every batch. A rank that is to have another order has another seed."""
    options, fault = rank.options, fault_of(rank.options, rank.spec.rank)
    seed = options.seed + (1 if fault is not None and fault.kind == "data-order" else 0)
    order = reference.global_order(rank, seed)
    plan = [order.shard(step, rank.spec.rank if parts > 1 else 0, parts) for step in range(1, steps + 1)]
    return batches(rank.torch, rank.samples, plan, rank.device)
