"""The steps of one torch rank, whatever the strategy: feed, forward, backward, update, and keep what is compared."""

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from gpucheck.model.smoke import Checkpoint
from gpucheck.train.progress import Progress
from gpucheck.train.report import Sums
from gpucheck.train.spec import fault_of
from gpucheck.train.torch.averaging import Averaging
from gpucheck.train.torch.common import autocast, build_optimizer, digest, number, raw, synchronize, whole
from gpucheck.train.torch.rank import Rank

COMPUTING = ("load", "forward", "backward", "optimizer")
# Fixed, and never raised: a scale that adapts would skip other steps in the reference than in the distributed run.
FP16_SCALE = 1024.0
_leaked: list[Any] = []


class Training:
    """One training from its first step to its last.

    forward: images to logits. batches: (images, labels) by step. averaging: the all-reduce, where the strategy has one
    of its own to check. exchange: whether other ranks are there to compare with. per_step: whether gradients are whole
    on every rank, so that each step's can be hashed. record: prefix of this training's keys in the store.
    """

    def __init__(
        self,
        rank: Rank,
        progress: Progress,
        *,
        forward: Callable[[Any], Any],
        parameters: list[Any],
        batches: Iterator[tuple[Any, Any]],
        averaging: Averaging | None = None,
        exchange: bool = False,
        per_step: bool = True,
        record: str = "first",
    ) -> None:
        self.losses: list[float | None] = []
        self.gradients: list[str] = []
        self.sums: list[Sums] = []
        self.checkpoints: list[Checkpoint] = []
        self.compute_seconds: list[float] = []
        self.overlaps: list[float] = []
        self.fed = hashlib.sha256()
        self.seconds = 0.0
        self.parameters = parameters
        self.initial = [whole(parameter).detach().clone() for parameter in parameters]
        self._rank, self._progress = rank, progress
        self._forward, self._batches = forward, batches
        self._averaging, self._exchanging, self._per_step, self._record = averaging, exchange, per_step, record
        self._fault = fault_of(rank.options, rank.spec.rank)
        frozen = self._fault is not None and self._fault.kind == "freeze"
        device, torch = rank.device, rank.torch
        self._optimizer = build_optimizer(torch, parameters, rank.options.model, frozen=frozen)
        scaled = rank.options.precision == "fp16"
        self._scaler = torch.amp.GradScaler(
            device.type, enabled=scaled, init_scale=FP16_SCALE, growth_interval=1_000_000_000
        )

    def run(self, steps: int) -> None:
        """All steps, with a comparison across the ranks before the first and after every few."""
        every = self._rank.options.check_every
        self._compare_start()
        warm = 0.0
        for step in range(1, steps + 1):
            self._train(step)
            if step % every == 0 or step == steps:
                self._compare(step)
            if step == 1:
                warm = self._busy()
        self.seconds = self._busy() - warm
        if self._fault is not None and self._fault.kind == "leak":
            _leaked.append(self._rank.torch.ones(16 << 20))

    def final(self) -> list[Any]:
        return [whole(parameter).detach().clone() for parameter in self.parameters]

    def _train(self, step: int) -> None:
        torch, devices, progress = self._rank.torch, self._rank.devices, self._progress
        before = self._computed()
        if self._averaging is not None:
            self._averaging.begin(step)
        progress.enter("load", step)
        images, labels = next(self._batches)
        self._wait(devices)
        progress.enter("forward", step)
        self._optimizer.zero_grad()
        with autocast(torch, self._rank.device, self._rank.options.precision):
            loss = torch.nn.functional.cross_entropy(self._forward(images), labels)
        if self._faulty("nan", step):
            loss = loss * math.nan
        self._wait(devices)
        if self._averaging is not None:
            self._averaging.begin_backward()
        queued = self._computed(("backward",))
        progress.enter("backward", step)  # the averaging enters "allreduce" when the last gradients are ready
        self._scaler.scale(loss).backward()
        self._wait(devices)
        progress.enter("check", step)
        queued = self._computed(("backward",)) - queued
        on_gpu = self._averaging.backward_seconds() if self._averaging is not None else None
        self._keep(loss, images, labels)
        progress.enter("optimizer", step)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._wait(devices)
        progress.enter("check", step)
        seconds = self._computed() - before
        self.compute_seconds.append(seconds if on_gpu is None else seconds - queued + on_gpu)

    def _computed(self, phases: tuple[str, ...] = COMPUTING) -> float:
        """Seconds in computing phases, without those in which other work had the CPU: that makes no rank slow."""
        seconds, waited = self._progress.seconds, self._progress.waited
        return sum(seconds.get(phase, 0.0) - waited.get(phase, 0.0) for phase in phases)

    def _wait(self, devices: tuple[Any, ...]) -> None:
        for device in devices:
            synchronize(self._rank.torch, device)

    def _keep(self, loss: Any, images: Any, labels: Any) -> None:
        self.losses.append(number(loss.item()))
        if self._per_step:
            self.gradients.append(digest(parameter.grad for parameter in self.parameters))
        self.fed.update(raw(images))
        self.fed.update(raw(labels))
        if self._averaging is not None:
            sums, overlap = self._averaging.collect()
            self.sums.append(sums)
            if overlap is not None:
                self.overlaps.append(overlap)

    def _compare_start(self) -> None:
        (everybody,) = self._exchange("start", digest(self.parameters))
        self.checkpoints.append(Checkpoint(step=0, parameters=everybody))

    def _compare(self, step: int) -> None:
        since = self.checkpoints[-1].step
        if self._per_step:
            gradients = hashlib.sha256("".join(self.gradients[since:]).encode()).hexdigest()
        else:
            gradients = digest(parameter.grad for parameter in self.parameters)
        state = digest(entry["momentum_buffer"] for entry in self._optimizer.state.values())
        everybody = self._exchange(f"step-{step}", digest(self.parameters), gradients, state)
        self.checkpoints.append(
            Checkpoint(step=step, parameters=everybody[0], gradients=everybody[1], optimizer=everybody[2])
        )

    def _exchange(self, key: str, *mine: str) -> list[tuple[str, ...]]:
        """Return each of this rank's values next to those of all others, in rank order; waits for them.

        Through the store and not through the backend: a backend that damages gradients would damage the proof too.
        """
        if not self._exchanging:
            return [(value,) for value in mine]
        store, spec = self._rank.store, self._rank.spec
        key = f"{self._record}/{key}"
        store.set(f"{key}/{spec.rank}", " ".join(mine))
        return list(zip(*(store.get(f"{key}/{rank}").decode().split() for rank in range(spec.processes)), strict=True))

    def _busy(self) -> float:
        return sum(self._progress.seconds.get(phase, 0.0) for phase in (*COMPUTING, "allreduce"))

    def _faulty(self, kind: str, step: int) -> bool:
        return self._fault is not None and self._fault.kind == kind and self._fault.step == step
