"""ddp with a rank that is broken as no simulated machine is: ``FAULTS`` of rank 1, of every rank if they freeze.

As a program of ranks it has the fault that the variable BROKEN names.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import Rank
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies.torch_training import ddp
from gpucheck.train.torch.training import Averaging, Training

STEP = 6  # of the first training and of the one that it is compared with; a repeat is shorter
Changes = Iterator[tuple[Any, str, Callable[..., Any]]]
_leaked: list[Any] = []


def run(spec: RankSpec, progress: Progress) -> RankReport:
    with broken(os.environ["BROKEN"], spec.rank):
        return ddp(spec, progress)


@contextmanager
def broken(name: str, rank: int) -> Iterator[None]:
    """Change this rank for a while; one that is to be healthy has nothing changed."""
    with ExitStack() as stack:
        for change in FAULTS[name]() if name == "freeze" or (name in FAULTS and rank == 1) else ():
            stack.enter_context(patch.object(*change))
        yield


def _contributes(change: Callable[[Any, Any], Any]) -> Callable[[], Changes]:
    """change: gets what the rank contributes in the step and what it contributed in the one before."""

    def changes() -> Changes:
        import torch.distributed as dist

        begin, all_reduce, at = Averaging.begin, dist.all_reduce, SimpleNamespace(step=0, before=[], now=[])

        def begins(averaging: Averaging, step: int) -> None:
            at.step, at.before, at.now = step, at.now, []
            begin(averaging, step)

        def reduces(share: Any, **more: Any) -> Any:
            at.now.append(share.clone())
            if at.step == STEP:
                change(share, at.before[len(at.now) - 1])
            return all_reduce(share, **more)

        yield Averaging, "begin", begins
        yield dist, "all_reduce", reduces

    return changes


def _draws_others() -> Changes:
    real = Rank.plan

    def plan(rank: Rank, *arguments: int) -> list[Any]:
        options = replace(rank.options, seed=rank.options.seed + 1)
        return real(rank._replace(spec=replace(rank.spec, options=options)), *arguments)

    yield Rank, "plan", plan


def _freezes() -> Changes:
    real = Training.__init__

    def init(training: Training, rank: Rank, *more: Any) -> None:
        real(training, rank, *more)
        if rank.group:  # the training that it is compared with is not frozen
            training._optimizer.param_groups[0]["lr"] = 0.0

    yield Training, "__init__", init


def _overflows() -> Changes:
    from torch.nn import functional

    real, losses = functional.cross_entropy, count(1)

    def cross_entropy(*arguments: Any) -> Any:
        return real(*arguments) * (float("nan") if next(losses) == STEP - 1 else 1.0)

    yield functional, "cross_entropy", cross_entropy


def _leaks() -> Changes:
    import torch

    real = Training.run

    def run(training: Training, steps: int) -> Any:
        _leaked.append(torch.ones(16 << 20))
        return real(training, steps)

    yield Training, "run", run


FAULTS = {
    "drop": _contributes(lambda share, _: share.zero_()),
    "stale": _contributes(lambda share, before: share.copy_(before)),
    "data-order": _draws_others,
    "freeze": _freezes,
    "nan": _overflows,
    "leak": _leaks,
}
