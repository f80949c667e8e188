"""ddp with a rank that is broken as no simulated machine is: ``FAULTS`` of rank 1, of every rank if they freeze.

As a program of ranks it has the fault that the variable BROKEN names.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar
from unittest.mock import patch

from msgspec.structs import replace

from gpucheck.train.progress import Progress, RankReport
from gpucheck.train.session import Trained
from gpucheck.train.spec import RankSpec
from gpucheck.train.strategies import torch_training
from gpucheck.train.torch import training
from gpucheck.train.torch.training import Averaging, Training, feed

FAULTS = ("drop", "stale", "data-order", "freeze", "nan", "leak")
_leaked: list[Any] = []


def run(spec: RankSpec, progress: Progress) -> RankReport:
    with broken(os.environ["BROKEN"], spec.rank):
        return torch_training.ddp(spec, progress)


@contextmanager
def broken(name: str, rank: int) -> Iterator[None]:
    """Break this rank for a while; one that is to be healthy has nothing changed."""

    class Contribution(Averaging):
        """Nothing in step 6, or the gradients of the step before."""

        _earlier: ClassVar[dict[int, Any]] = {}

        def average(self, bucket: Any) -> Any:
            self._bucket = bucket
            return super().average(bucket)

        def _slow_down(self) -> None:  # the sums of what is sent have been taken
            buffer, number = self._bucket.buffer(), self._bucket.index()
            earlier, self._earlier[number] = self._earlier.get(number), buffer.clone()
            if self._step == 6:
                buffer.copy_(earlier) if name == "stale" else buffer.zero_()

    class Broken(Training):
        def run(self, steps: int) -> Trained:
            rank, forward, calls = self._rank, self._forward, count(1)
            if name == "data-order":
                options = replace(rank.options, seed=rank.options.seed + 1)
                self._batches = feed(rank._replace(spec=replace(rank.spec, options=options)), steps)
            elif name == "freeze" and rank.group:  # the training that it is compared with is not frozen
                self._optimizer.param_groups[0]["lr"] = 0.0
            elif name == "nan":
                self._forward = lambda images: forward(images) * (math.nan if next(calls) == 5 else 1.0)
            elif name == "leak":
                _leaked.append(rank.torch.ones(16 << 20))
            return super().run(steps)

    if name == "freeze" or (name in FAULTS and rank == 1):
        averaging = Contribution if name in ("drop", "stale") else Averaging
        with patch.object(training, "Training", Broken), patch.object(torch_training, "Averaging", averaging):
            yield
    else:
        yield
