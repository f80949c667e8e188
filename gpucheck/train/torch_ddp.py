"""PyTorch DistributedDataParallel, the part of one rank: train, and compare with the other ranks and one process.

The same code runs on GPUs (NCCL), on one shared GPU and on CPUs (gloo). torch is imported inside the functions.
"""

import hashlib
import math
from datetime import timedelta
from typing import Any

from gpucheck.train import data, torch_common, torch_reference
from gpucheck.train.outcome import Checkpoint, RankReport
from gpucheck.train.progress import STEP, Progress
from gpucheck.train.spec import RankSpec, fault_of
from gpucheck.train.torch_common import digest, number, raw, synchronize
from gpucheck.train.workplace import Workplace

# Added to the supervisor's deadline: it must be the shorter one, so that stacks are taken before a rank gives up.
PATIENCE_S = 60.0


def run(spec: RankSpec, place: Workplace, progress: Progress) -> RankReport:
    """Train this rank from rendezvous to report. Raises whatever torch raises."""
    progress.enter("import")
    import torch
    import torch.distributed as dist

    torch_common.settle(torch)
    progress.enter("init")
    options = spec.options
    patience = timedelta(seconds=options.timeout_s + PATIENCE_S)
    store = dist.FileStore(str(place.store), options.world_size)
    store.set_timeout(patience)
    where = torch_common.agree(store, spec, torch_common.view(torch))
    device = torch.device(where.device(spec.rank))
    name, bus_id = torch_common.identity(torch, device)
    progress.on_device(str(device), bus_id)

    progress.enter("device")
    torch_common.open_device(torch, device)
    progress.enter("connect")
    dist.init_process_group(
        where.backend,
        store=store,
        rank=spec.rank,
        world_size=options.world_size,
        timeout=patience,
        device_id=device
        if where.backend == "nccl"
        else None,  # NCCL then connects here and not in the first collective
    )

    progress.enter("data")
    samples = data.synthetic(options.seed)
    images, labels = torch.from_numpy(samples.images).to(device), torch.from_numpy(samples.labels).to(device)
    training = Training(torch, spec, progress, store, images, labels)
    training.run()

    progress.enter("reference")
    first = spec.rank == 0
    final = [parameter.detach() for parameter in training.model.parameters()]
    course = torch_reference.Course(images, labels, training.initial, final)
    reference = torch_reference.compare(torch, options, course, progress) if first else None
    accuracy = torch_common.accuracy(torch, training.model, samples, device) if first else None
    progress.enter("report")
    return RankReport(
        rank=spec.rank,
        world_size=dist.get_world_size(),
        model=torch_common.MODEL,
        backend=dist.get_backend(),
        placement=where.placement,
        placement_reason=where.reason,
        device=str(device),
        device_name=name,
        bus_id=bus_id,
        losses=tuple(training.losses),
        gradient_hashes=tuple(training.gradients),
        data_hash=training.fed.hexdigest(),
        checkpoints=tuple(training.checkpoints),
        accuracy=accuracy,
        held_out=len(samples.held_out_labels),
        reference=reference,
        seconds=dict(progress.seconds),
        samples=(options.steps - 1) * options.batch_per_rank,
        samples_seconds=training.seconds,
        versions=torch_common.versions(torch),
    )


class Training:
    """The steps of one rank, and what they leave behind.

    initial: the parameters after DDP's broadcast. seconds: of all steps but the first, comparisons left out.
    """

    def __init__(self, torch: Any, spec: RankSpec, progress: Progress, store: Any, images: Any, labels: Any) -> None:
        self.losses: list[float | None] = []
        self.gradients: list[str] = []
        self.checkpoints: list[Checkpoint] = []
        self.fed = hashlib.sha256()
        self.seconds = 0.0
        self._torch, self._spec, self._progress, self._store = torch, spec, progress, store
        self._images, self._labels, self._device = images, labels, images.device
        self._step: int | None = None
        options = spec.options
        self._fault = fault = fault_of(options, spec.rank)
        broken = fault.kind if fault else None
        # Every rank starts elsewhere, so that equal parameters after the broadcast are DDP's work and no coincidence.
        self.model = torch_common.build_model(torch, options.seed + spec.rank, self._device)
        progress.enter("broadcast")
        self._wrapped = torch.nn.parallel.DistributedDataParallel(self.model)
        # A lambda: torch insists on its own annotations or on none.
        self._wrapped.register_comm_hook(None, lambda _state, bucket: self._average(bucket))
        self.initial = [parameter.detach().clone() for parameter in self.model.parameters()]
        rate = 0.0 if broken == "freeze" else torch_common.LEARNING_RATE
        self._optimizer = torch_common.build_optimizer(torch, self.model, rate)
        seed = options.seed + (1 if broken == "data-order" else 0)
        self._order = data.Order(seed, data.TRAIN, options.batch_per_rank * options.world_size)

    def run(self) -> None:
        """All steps, with a comparison across the ranks before the first and after every few."""
        options = self._spec.options
        self._compare_start()
        for step in range(1, options.steps + 1):
            self._step = step
            self._train(step)
            if step % options.check_every == 0 or step == options.steps:
                self._compare(step)
            if step == 1:
                warm = self._busy()
        self._step = None
        self.seconds = self._busy() - warm

    def _train(self, step: int) -> None:
        torch, device = self._torch, self._device
        self._progress.enter("load", step)
        shard = self._order.shard(step, self._spec.rank, self._spec.options.world_size)
        chosen = torch.from_numpy(shard).to(device)
        images, labels = self._images[chosen], self._labels[chosen]
        synchronize(torch, device)
        self._progress.enter("forward", step)
        self._optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self._wrapped(images), labels)
        if self._faulty("nan", step):
            loss = loss * math.nan
        synchronize(torch, device)
        self._progress.enter("backward", step)  # _average enters "allreduce" when the gradients are ready
        loss.backward()
        synchronize(torch, device)
        self._progress.enter("check", step)
        if self._faulty("flip-bit", step):
            next(self.model.parameters()).grad.view(-1).view(torch.int32)[0] ^= 1
        self._keep(loss, images, labels)
        self._progress.enter("optimizer", step)
        self._optimizer.step()
        synchronize(torch, device)
        self._progress.enter("check", step)

    def _keep(self, loss: Any, images: Any, labels: Any) -> None:
        self.losses.append(number(loss.item()))
        self.gradients.append(digest(parameter.grad for parameter in self.model.parameters()))
        self.fed.update(raw(images))
        self.fed.update(raw(labels))

    def _average(self, bucket: Any) -> Any:
        """DDP's own averaging all-reduce as a communication hook, which puts on record when it is entered."""
        self._progress.enter("allreduce", self._step)
        share = bucket.buffer().div_(self._spec.options.world_size)
        summed = self._torch.distributed.all_reduce(share, async_op=True).get_future()
        return summed.then(lambda future: future.value()[0])

    def _compare_start(self) -> None:
        (everybody,) = self._exchange("start", digest(self.model.parameters()))
        self.checkpoints.append(Checkpoint(step=0, parameters=everybody))

    def _compare(self, step: int) -> None:
        since = self.checkpoints[-1].step
        gradients = hashlib.sha256("".join(self.gradients[since:]).encode()).hexdigest()
        state = digest(entry["momentum_buffer"] for entry in self._optimizer.state.values())
        everybody = self._exchange(f"step-{step}", digest(self.model.parameters()), gradients, state)
        self.checkpoints.append(
            Checkpoint(step=step, parameters=everybody[0], gradients=everybody[1], optimizer=everybody[2])
        )

    def _exchange(self, key: str, *mine: str) -> list[tuple[str, ...]]:
        """Each of this rank's values beside those of all others, in rank order; waits for them.

        Through the store and not through the backend: a backend that damages gradients would damage the proof too.
        """
        world = range(self._spec.options.world_size)
        self._store.set(f"{key}/{self._spec.rank}", " ".join(mine))
        return list(zip(*(self._store.get(f"{key}/{rank}").decode().split() for rank in world), strict=True))

    def _busy(self) -> float:
        return sum(self._progress.seconds[phase] for phase in STEP if phase != "check")

    def _faulty(self, kind: str, step: int) -> bool:
        return self._fault is not None and self._fault.kind == kind and self._fault.step == step
