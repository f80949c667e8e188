"""The steps of one torch rank, whatever the strategy: feed, forward, backward, update, and keep what is compared."""

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from gpucheck.model.smoke import Checkpoint
from gpucheck.train.models import MODELS, MOMENTUM
from gpucheck.train.progress import Progress, RankReport, Sums
from gpucheck.train.session import Rank, Trained, number, train_and_report
from gpucheck.train.spec import fault_of
from gpucheck.train.torch.rank import (
    autocast,
    build_model,
    digest,
    memory_in_use,
    raw,
    share,
    synchronize,
    whole,
)

# The sums have fixed random signs and are taken in float64. They are linear, so those of the average must be the
# average of the ranks' own, whatever carried the data: ``gpucheck.train.results.merge`` compares them.
# A lost contribution stays unseen only where all of these come out as zero by chance.
SUMS_PER_BUCKET = 4
SIGN_SEED = 7919


class Averaging:
    """The hook of one training. Buckets are DDP's: the same tensors in the same order on every rank."""

    def __init__(self, rank: Rank, progress: Progress) -> None:
        self._torch, self._progress, self._fault = rank.torch, progress, fault_of(rank.options, rank.spec.rank)
        self._world, self._device = rank.spec.processes, rank.device
        self._signs: dict[int, Any] = {}
        self.begin(0)

    def begin(self, step: int) -> None:
        """Forget what an earlier step left."""
        self._step, self._began = step, time.monotonic()
        self._sent: list[Any] = []
        self._norms: list[Any] = []
        self._received: dict[int, Any] = {}
        self._backward: list[Any] = []

    def backward_seconds(self) -> float | None:
        """Return how long the GPU computed in the backward pass; None on CPUs, where the host's clock has it.

        To be called when the step is over. On the host's clock the pass ends when its kernels are queued, and waiting
        for the other ranks follows at once; the stream that computes waits for no rank before the event.
        """
        if len(self._backward) < 2:
            return None
        return float(self._backward[0].elapsed_time(self._backward[-1])) / 1e3

    def mark(self) -> None:
        """Put on the GPU's clock that the backward pass begins, when it has nothing to do, or ends."""
        if self._device.type == "cuda":
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._backward.append(event)

    def average(self, bucket: Any) -> Any:
        """The communication hook: returns a future of the averaged bucket."""
        buffer, number_ = bucket.buffer(), bucket.index()
        with self._progress.booked("check", "backward"):
            wide = buffer.double()
            self._sent.append(self._sums(wide))
            self._norms.append(wide.norm())
        self._slow_down()
        if bucket.is_last():
            self.mark()
            self._progress.enter("allreduce", self._step)
        summed = self._torch.distributed.all_reduce(buffer.div_(self._world), async_op=True).get_future()
        return summed.then(self._arrived(number_))

    def _arrived(self, bucket: int) -> Callable[[Any], Any]:
        def take(future: Any) -> Any:
            averaged = future.value()[0]
            fault = self._fault
            if fault is not None and (fault.kind, fault.step, bucket) == ("flip-bit", self._step, 0):
                averaged.view(-1).view(self._torch.int32)[0] ^= 1
            self._received[bucket] = averaged
            return averaged

        return take

    def collect(self) -> Sums:
        """The sums of the step that is over."""
        received = [self._sums(self._received[bucket].double()) for bucket in sorted(self._received)]
        flat = self._torch.cat([*self._sent, *received, self._torch.stack(self._norms)]).tolist()
        half = SUMS_PER_BUCKET * len(self._sent)
        norm = sum(value * value for value in flat[2 * half :]) ** 0.5
        return Sums(
            sent=tuple(map(number, flat[:half])), received=tuple(map(number, flat[half : 2 * half])), norm=number(norm)
        )

    def _sums(self, wide: Any) -> Any:
        size = wide.numel()
        if size not in self._signs:
            random = self._torch.Generator().manual_seed(SIGN_SEED + size)
            signs = self._torch.randint(0, 2, (SUMS_PER_BUCKET, size), generator=random, dtype=self._torch.float64)
            self._signs[size] = (signs * 2 - 1).to(self._device)
        return self._signs[size] @ wide.view(-1)

    def _slow_down(self) -> None:
        if self._fault is not None and self._fault.kind == "slow":
            time.sleep((self._fault.factor - 1) * (time.monotonic() - self._began))
            self._began = time.monotonic()


COMPUTING = ("load", "forward", "backward", "optimizer")
# Fixed, and never raised: a scale that adapts would skip other steps in the reference than in the distributed run.
FP16_SCALE = 1024.0


class Wrapped(NamedTuple):
    """What a strategy makes of a model. forward: images to logits. model: whose parameters are trained.

    averaging: the all-reduce, where the strategy has one of its own to check.
    """

    forward: Callable[[Any], Any]
    model: Any
    averaging: Averaging | None = None


Wrap = Callable[[Progress], Wrapped]


def report(rank: Rank, wraps: dict[str, Wrap], *, communication: str, more: str = "") -> RankReport:
    """Run the trainings of a strategy and return the results; over several hosts, those of all ranks.

    wraps: by what they are compared with; the first is the one that is reported in full.
    """
    torch, options, device = rank.torch, rank.options, rank.device

    def alone(_: Progress) -> Wrapped:
        model = build_model(torch, options.model, options.seed, device)
        return Wrapped(model, model)

    def predict(values: list[Any]) -> Any:
        model = build_model(torch, options.model, options.seed, device)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), values, strict=True):
                parameter.copy_(torch.from_numpy(value))
            return model(torch.from_numpy(rank.samples.held_out_images).to(device)).cpu().numpy()

    made = train_and_report(
        rank,
        {name: partial(train, rank, wrap) for name, wrap in wraps.items()},
        partial(train, rank._replace(group=False, devices=rank.devices[:1]), alone),
        predict,
        communication=communication,
        memory_in_use=partial(memory_in_use, torch, device),
        more=more,
    )
    return share(rank, made)


def train(rank: Rank, wrap: Wrap, record: str, progress: Progress, steps: int) -> Trained:
    """Train once. record: prefix of this training's keys in the store."""
    return Training(rank, progress, wrap(progress), feed(rank, steps), record).run(steps)


def feed(rank: Rank, steps: int) -> Iterator[tuple[Any, Any]]:
    """(images, labels) of this rank on its device, for each step."""
    torch, samples = rank.torch, rank.samples
    for chosen in rank.plan(steps, rank.spec.processes, rank.spec.rank) if rank.group else rank.plan(steps):
        batch = [torch.from_numpy(part[chosen]) for part in (samples.images, samples.labels)]
        if rank.device.type == "cuda":
            batch = [part.pin_memory().to(rank.device, non_blocking=True) for part in batch]
        yield batch[0], batch[1]


class Training:
    """One training from its first step to its last."""

    def __init__(
        self, rank: Rank, progress: Progress, wrapped: Wrapped, batches: Iterator[tuple[Any, Any]], record: str
    ) -> None:
        self._made = Trained()
        self._fed = hashlib.sha256()
        self._parameters = list(wrapped.model.parameters())
        self._rank, self._progress = rank, progress
        self._forward, self._averaging = wrapped.forward, wrapped.averaging
        self._batches, self._record = batches, record
        # Gradients that are spread over the ranks cannot be hashed in each step.
        self._per_step = self._averaging is not None or not rank.group
        # Adam would divide rounding noise by its own size and blur the reference.
        rate = MODELS[rank.options.model].learning_rate
        self._optimizer = rank.torch.optim.SGD(self._parameters, lr=rate, momentum=MOMENTUM)
        self._scaler = rank.torch.amp.GradScaler(
            rank.device.type,
            enabled=rank.options.precision == "fp16",
            init_scale=FP16_SCALE,
            growth_interval=1_000_000_000,
        )

    def run(self, steps: int) -> Trained:
        """All steps, with a comparison across the ranks before the first and after every few."""
        every, made = self._rank.options.check_every, self._made
        made.initial = self._values()
        (everybody,) = self._exchange("start", digest(self._parameters))
        made.checkpoints.append(Checkpoint(step=0, parameters=everybody))
        warm = 0.0
        for step in range(1, steps + 1):
            self._train(step)
            if step % every == 0 or step == steps:
                self._compare(step)
            if step == 1:
                warm = self._progress.busy()
        made.final, made.fed, made.seconds = self._values(), self._fed.hexdigest(), self._progress.busy() - warm
        return made

    def _values(self) -> list[Any]:
        return [whole(parameter).detach().cpu().numpy().copy() for parameter in self._parameters]

    def _train(self, step: int) -> None:
        torch, progress = self._rank.torch, self._progress
        before = self._computed()
        if self._averaging is not None:
            self._averaging.begin(step)
        progress.enter("load", step)
        images, labels = next(self._batches)
        self._wait()
        progress.enter("forward", step)
        self._optimizer.zero_grad()
        with autocast(torch, self._rank.device, self._rank.options.precision):
            loss = torch.nn.functional.cross_entropy(self._forward(images), labels)
        self._wait()
        if self._averaging is not None:
            self._averaging.mark()
        queued = self._computed(("backward",))
        progress.enter("backward", step)  # the averaging enters "allreduce" when the last gradients are ready
        self._scaler.scale(loss).backward()
        self._wait()
        progress.enter("check", step)
        queued = self._computed(("backward",)) - queued
        on_gpu = self._averaging.backward_seconds() if self._averaging is not None else None
        self._keep(loss, images, labels)
        progress.enter("optimizer", step)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._wait()
        progress.enter("check", step)
        seconds = self._computed() - before
        self._made.compute_seconds.append(seconds if on_gpu is None else seconds - queued + on_gpu)

    def _computed(self, phases: tuple[str, ...] = COMPUTING) -> float:
        """Seconds in computing phases, without those in which other work had the CPU: that makes no rank slow."""
        seconds, waited = self._progress.seconds, self._progress.waited
        return sum(seconds.get(phase, 0.0) - waited.get(phase, 0.0) for phase in phases)

    def _wait(self) -> None:
        for device in self._rank.devices:
            synchronize(self._rank.torch, device)

    def _keep(self, loss: Any, images: Any, labels: Any) -> None:
        self._made.losses.append(number(loss.item()))
        if self._per_step:
            self._made.gradients.append(digest(parameter.grad for parameter in self._parameters))
        self._fed.update(raw(images))
        self._fed.update(raw(labels))
        if self._averaging is not None:
            self._made.sums.append(self._averaging.collect())

    def _compare(self, step: int) -> None:
        if self._per_step:
            since = self._made.checkpoints[-1].step
            gradients = hashlib.sha256("".join(self._made.gradients[since:]).encode()).hexdigest()
        else:
            gradients = digest(parameter.grad for parameter in self._parameters)
        state = digest(entry["momentum_buffer"] for entry in self._optimizer.state.values())
        everybody = self._exchange(f"step-{step}", digest(self._parameters), gradients, state)
        self._made.checkpoints.append(
            Checkpoint(step=step, parameters=everybody[0], gradients=everybody[1], optimizer=everybody[2])
        )

    def _exchange(self, key: str, *mine: str) -> list[tuple[str, ...]]:
        """Return each of this rank's values next to those of all others, in rank order; waits for them.

        Through the store and not through the backend: a backend that damages gradients would damage the proof too.
        """
        if not self._rank.group:
            return [(value,) for value in mine]
        store, spec = self._rank.store, self._rank.spec
        key = f"{self._record}/{key}"
        store.set(f"{key}/{spec.rank}", " ".join(mine))
        return list(zip(*(store.get(f"{key}/{rank}").decode().split() for rank in range(spec.processes)), strict=True))
