"""From a strategy's trainings to its report: train, compare with one device, train again, look at the memory."""

import hashlib
import math
import platform
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from gpucheck.model.smoke import Checkpoint, Reference, Repeat
from gpucheck.train.data import DataSet, order
from gpucheck.train.progress import Aside, Progress, RankDevice, RankReport, Sums
from gpucheck.train.spec import RankPlacement, RankSpec, SmokeOptions

# What a strategy is compared with: one that has several ranks, and one that has several devices.
ONE_PROCESS, ONE_DEVICE = "one process with the entire batch", "one device with the entire batch"


class Rank(NamedTuple):
    """A rank that is ready. described: its devices. samples: empty for a transfer test.

    Of torch only: the module, the store at which the ranks meet, its devices, and whether it is in the process group.
    """

    spec: RankSpec
    progress: Progress
    where: RankPlacement
    described: tuple[RankDevice, ...]
    versions: dict[str, str | None]
    samples: DataSet = DataSet((), (), (), ())
    torch: Any = None
    store: Any = None
    devices: tuple[Any, ...] = ()
    group: bool = False

    @property
    def options(self) -> SmokeOptions:
        return self.spec.options

    @property
    def device(self) -> Any:
        return self.devices[0]

    def plan(self, steps: int, parts: int = 1, part: int = 0) -> list[Any]:
        """Return the sample numbers of each step: the part of a rank, or the whole batch."""
        options = self.options
        batch = options.batch_per_rank * options.world_size
        return [whole[part::parts] for whole in order(options.seed, len(self.samples.labels), batch, steps)]

    def reported(self, model: str, more: str = "", **found: Any) -> RankReport:
        """Return the report. more: added to the reason of the placement."""
        return RankReport(
            rank=self.spec.rank,
            world_size=self.spec.processes,
            model=model,
            backend=self.where.backend,
            placement=self.where.placement,
            placement_reason=self.where.reason + more,
            devices=self.described,
            seconds=dict(self.progress.seconds),
            versions={"python": platform.python_version(), **self.versions},
            **found,
        )


class Trained(msgspec.Struct, kw_only=True):
    """What a training leaves. initial, final: the parameters as arrays. fed: hash of every sample it was fed.

    seconds: of all steps but the first, without the comparisons. The others as in RankReport.
    """

    losses: list[float | None] = []
    gradients: list[str] = []
    sums: list[Sums] = []
    checkpoints: list[Checkpoint] = []
    compute_seconds: list[float] = []
    initial: list[Any] = []
    final: list[Any] = []
    fed: str = ""
    seconds: float = 0.0


Train = Callable[[str, Progress, int], Trained]
"""Gets the name of the training, under which its ranks exchange hashes, and the number of steps."""


def train_and_report(
    rank: Rank,
    trainings: dict[str, Train],
    alone: Train,
    predict: Callable[[list[Any]], Any],
    *,
    communication: str,
    memory_in_use: Callable[[], int] | None = None,
    more: str = "",
) -> RankReport:
    """Run the trainings of a strategy and return its report.

    trainings: by what they are compared with; the first is reported in full. alone: the same on one device.
    predict: gets the parameters, returns the logits of the held-out samples. more: of the reason of the placement.
    """
    options, progress, spec = rank.options, rank.progress, rank.spec
    parts = spec.processes if rank.group else 1  # over which every batch is split
    first, *others = trainings
    trained = trainings[first]("first", progress, options.steps)
    finals = {first: trained.final}
    for name in others:
        finals[name] = trainings[name](name, Aside(progress, "repeat"), options.steps).final
    progress.enter("reference")
    references: tuple[Reference, ...] = ()
    learned = None
    if spec.rank == 0:
        single = alone("alone", Aside(progress, "reference"), options.steps)
        planned = tuple(_hash_of(rank, part, parts) for part in range(parts)) if trained.fed else ()
        references = tuple(_compared(options, single, final, name, planned) for name, final in finals.items())
        learned = float((predict(trained.final).argmax(axis=1) == rank.samples.held_out_labels).mean())
        del single
    # Train the first steps twice more: the parameters must be those of the first time, and no memory may be lost.
    checkpoint, own = trained.checkpoints[1], spec.rank if rank.group else 0
    reached, in_use = "", []
    for nth in (1, 2) if memory_in_use else (1,):
        again = trainings[first](f"repeat-{nth}", Aside(progress, "repeat"), checkpoint.step)
        reached = again.checkpoints[-1].parameters[own]
        del again
        in_use += [memory_in_use()] if memory_in_use else []
    progress.enter("report")
    return rank.reported(
        options.model,
        more,
        losses=tuple(trained.losses),
        gradient_hashes=tuple(trained.gradients),
        data_hash=trained.fed,
        data_source=options.data or "synthetic",
        sums=tuple(trained.sums),
        checkpoints=tuple(trained.checkpoints),
        accuracy=learned,
        held_out=len(rank.samples.held_out_labels),
        references=references,
        repeat=Repeat(step=checkpoint.step, first=checkpoint.parameters[own], second=reached),
        memory_kept_bytes=in_use[1] - in_use[0] if in_use else None,
        # If communication was not measured apart, waiting for a slow rank looks like computing.
        compute_seconds=tuple(trained.compute_seconds) if trained.sums else (),
        communication=communication,
        samples=(options.steps - 1) * options.batch_per_rank * (options.world_size // spec.processes),
        samples_seconds=trained.seconds,
    )


def _hash_of(rank: Rank, part: int, parts: int) -> str:
    """Return the hash of what a rank should be fed."""
    sha, samples = hashlib.sha256(), rank.samples
    for chosen in rank.plan(rank.options.steps, parts, part):
        sha.update(samples.images[chosen])
        sha.update(samples.labels[chosen])
    return sha.hexdigest()


def _compared(
    options: SmokeOptions, single: Trained, final: list[Any], name: str, planned: tuple[str, ...]
) -> Reference:
    apart = _largest_difference(final, single.final)
    travelled = _largest_difference(single.initial, single.final)
    samples = (options.steps - 1) * options.batch_per_rank * options.world_size
    return Reference(
        name=name,
        max_abs_difference=number(apart),
        max_relative_difference=number(apart / travelled) if travelled else None,
        loss_last=single.losses[-1],
        data_hashes=planned,
        samples_per_s=round(samples / single.seconds, 1),
    )


def _largest_difference(some: list[Any], others: list[Any]) -> float:
    """Largest absolute difference; NaN if there is one anywhere (max() would drop a NaN that does not come first)."""
    apart = [float(abs(a - b).max()) for a, b in zip(some, others, strict=True)]
    return math.nan if any(map(math.isnan, apart)) else max(apart)


def number(value: float) -> float | None:
    """The value, or None for infinity and "not a number"."""
    return value if math.isfinite(value) else None
