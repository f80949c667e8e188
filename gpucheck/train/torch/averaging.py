"""DDP's averaging all-reduce as a communication hook, which keeps sums of what goes in and what comes out.

The sums have fixed random signs and are taken in float64. They are linear, so those of the average must be the average
of the ranks' own, whatever carried the data: ``gpucheck.train.results.merge`` compares them.
"""

import time
from collections.abc import Callable
from typing import Any

from gpucheck.train.progress import Progress
from gpucheck.train.report import Sums
from gpucheck.train.spec import TrainingFault
from gpucheck.train.torch.common import number
from gpucheck.train.torch.rank import Rank

# A lost contribution stays unseen only where all of these come out as zero by chance.
SUMS_PER_BUCKET = 4
SIGN_SEED = 7919


class Averaging:
    """The hook of one training. Buckets are DDP's: the same tensors in the same order on every rank."""

    def __init__(self, rank: Rank, progress: Progress, fault: TrainingFault | None) -> None:
        self._torch, self._progress, self._fault = rank.torch, progress, fault
        self._world, self._device = rank.spec.processes, rank.device
        self._timed = (
            rank.where.backend == "gloo"
        )  # NCCL's futures are done when the work is queued, not when it is over
        self._step = 0
        self._began = 0.0
        self._signs: dict[int, Any] = {}
        self._earlier: dict[int, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self._sent: list[Any] = []
        self._norms: list[Any] = []
        self._received: dict[int, Any] = {}
        self._spans: dict[int, list[float]] = {}
        self._computed_until = 0.0
        self._backward: list[Any] = []

    def begin(self, step: int) -> None:
        self._clear()
        self._step, self._began = step, time.monotonic()

    def begin_backward(self) -> None:
        """The backward pass is about to start, and the GPU has nothing to do."""
        self._mark()

    def backward_seconds(self) -> float | None:
        """Return how long the GPU computed in the backward pass; None on CPUs, where the host's clock has it.

        To be called when the step is over. On the host's clock the pass ends when its kernels are queued, and waiting
        for the other ranks follows at once; the stream that computes waits for no rank before the event.
        """
        if len(self._backward) < 2:
            return None
        return float(self._backward[0].elapsed_time(self._backward[-1])) / 1e3

    def _mark(self) -> None:
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
            self._mark()
            self._progress.enter("allreduce", self._step)
            self._computed_until = time.monotonic()
        share = self._damaged(buffer, number_).div_(self._world)
        self._spans[number_] = [time.monotonic()]
        summed = self._torch.distributed.all_reduce(share, async_op=True).get_future()
        return summed.then(self._arrived(number_))

    def _arrived(self, bucket: int) -> Callable[[Any], Any]:
        def take(future: Any) -> Any:
            self._spans[bucket].append(time.monotonic())
            averaged = future.value()[0]
            if self._acts("flip-bit") and bucket == 0:
                averaged.view(-1).view(self._torch.int32)[0] ^= 1
            self._received[bucket] = averaged
            return averaged

        return take

    def collect(self) -> tuple[Sums, float | None]:
        """The sums of the step that is over, and how much of the communication was hidden behind computing."""
        received = [self._sums(self._received[bucket].double()) for bucket in sorted(self._received)]
        flat = self._torch.cat([*self._sent, *received, self._torch.stack(self._norms)]).tolist()
        half = SUMS_PER_BUCKET * len(self._sent)
        norm = sum(value * value for value in flat[2 * half :]) ** 0.5
        sums = Sums(
            sent=tuple(map(number, flat[:half])), received=tuple(map(number, flat[half : 2 * half])), norm=number(norm)
        )
        return sums, self._overlap() if self._timed else None

    def _sums(self, wide: Any) -> Any:
        size = wide.numel()
        if size not in self._signs:
            random = self._torch.Generator().manual_seed(SIGN_SEED + size)
            signs = self._torch.randint(0, 2, (SUMS_PER_BUCKET, size), generator=random, dtype=self._torch.float64)
            self._signs[size] = (signs * 2 - 1).to(self._device)
        return self._signs[size] @ wide.view(-1)

    def _overlap(self) -> float | None:
        whole = sum(end - start for start, end in self._spans.values())
        hidden = sum(max(0.0, min(end, self._computed_until) - start) for start, end in self._spans.values())
        return hidden / whole if whole > 0 else None

    def _acts(self, kind: str) -> bool:
        return self._fault is not None and self._fault.kind == kind and self._fault.step == self._step

    def _damaged(self, buffer: Any, bucket: int) -> Any:
        """What this rank contributes: its gradients, unless a fault is to be found."""
        if self._fault is None or self._fault.kind not in ("drop", "stale"):
            return buffer
        earlier, self._earlier[bucket] = self._earlier.get(bucket), buffer.clone()
        if self._acts("drop"):
            buffer.zero_()
        elif self._acts("stale") and earlier is not None:
            buffer.copy_(earlier)
        return buffer

    def _slow_down(self) -> None:
        if self._fault is not None and self._fault.kind == "slow":
            time.sleep((self._fault.factor - 1) * (time.monotonic() - self._began))
            self._began = time.monotonic()
