"""One rank: ``python -m gpucheck.measure.collectives.rank FD RANK``, started by ``launch``; its options and report.

Bandwidth as NVIDIA/nccl-tests doc/PERFORMANCE.md defines it: algorithm bandwidth is size over time. Bus bandwidth
multiplies it by a factor that makes it comparable with the link rate for any number of ranks; this is exact for rings,
but not if the switch reduces the data (NVLS).
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any, Literal

import msgspec

from gpucheck.measure.engines.torch import ordinal, seconds
from gpucheck.measure.values import MISTAKES
from gpucheck.model.device import Device
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.ranks import rank as ranks
from gpucheck.processes.ranks.nodes import Nodes, leave_store, open_store
from gpucheck.processes.ranks.rank import Sender, run_rank

# Name -> whether one rank contributes 1/n of the bytes that the size counts; otherwise all of them.
ALL = {
    "all_reduce": False,  # counts the buffer on each rank
    "all_gather": True,  # the whole output on each rank
    "reduce_scatter": True,  # the whole input on each rank
    "broadcast": False,  # the buffer
    "all_to_all": True,  # the whole buffer on each rank
    "send_recv": False,  # the buffer, passed on around a ring
}


def bus_factor(name: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth. Raises LookupError for an unknown collective."""
    if name not in ALL:
        raise LookupError(f"unknown collective {name!r}; known: {', '.join(ALL)}")
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if ALL[name] else 1.0


def elements(size_bytes: int, ranks: int, element_bytes: int = 4) -> int:
    """Return the elements of a buffer of about this size, a multiple of the ranks and at least one per rank."""
    return max(1, size_bytes // element_bytes // ranks) * ranks


# The failed operation: the collective; the program; memory, disk or open files; access to the GPU.
ErrorKind = Literal["collective", "defect", "no-resources", "no-device"]


class RankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run. bus_ids: of the GPUs by local rank, empty on CPUs. nodes: None on one host.

    iterations: collectives in one sample; samples: each of them with one checked collective before it.
    """

    backend: Literal["nccl", "gloo"]
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    bus_ids: tuple[str, ...] = ()
    nodes: Nodes | None = None
    warm_ups: int = 5
    iterations: int = 20
    samples: int = 7
    timeout_s: float = 60.0


RankSpec = ranks.RankSpec[RankOptions]


class MeasuredCollective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective at one size. seconds: mean per sample, of the slowest rank. wrong: elements of all ranks."""

    operation: str
    size: int
    seconds: tuple[float, ...] = ()
    checked: int = 0
    wrong: int = 0


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a rank that finished. The results are the same in all ranks."""

    rank: int
    world_size: int
    device: str
    device_name: str | None
    versions: dict[str, str | None]
    measured: tuple[MeasuredCollective, ...]


PERIOD = 7  # of the values, which are small, so that sums of floats are exact
PATIENCE_S = 60.0  # after the limit of a round, which is enforced from outside the ranks


class NoDevice(Exception):
    """torch in this rank cannot use its GPU."""


class Rank:
    """The state of one rank while it runs."""

    def __init__(self, torch: Any, sender: Sender, spec: RankSpec) -> None:
        self.torch = torch
        self.store_file = spec.store
        self.sender = sender
        self.is_first = spec.local_rank == 0
        self.options = options = spec.options
        self.rank, self.world = spec.rank, spec.processes
        self.device = torch.device("cpu")
        if options.backend == "nccl":
            gpu = Device(index=spec.local_rank, name="GPU", bus_id=options.bus_ids[spec.local_rank])
            try:
                self.device = torch.device("cuda", ordinal(torch, gpu))
                torch.cuda.set_device(self.device)
            except (LookupError, RuntimeError, AssertionError) as error:  # AssertionError: a build without CUDA
                raise NoDevice(str(error)) from error

    def run(self) -> RankReport:
        """Join the other ranks, then run every collective at every size."""
        distributed = self.torch.distributed
        self.note("rendezvous")
        options = self.options
        store = open_store(distributed, self.store_file, options.nodes, self.rank, self.world, options.timeout_s)
        distributed.init_process_group(
            options.backend,
            store=store,
            rank=self.rank,
            world_size=self.world,
            timeout=timedelta(seconds=options.timeout_s + PATIENCE_S),
        )
        measured: list[MeasuredCollective] = []
        for name, size in product(options.operations, options.sizes):
            measured.append(self.measure(name, size))
            if self.is_first:
                self.sender.send("part", self.report(tuple(measured)))
        self.note("done")
        leave_store(store, self.rank, self.world)
        return self.report(tuple(measured))

    def report(self, measured: tuple[MeasuredCollective, ...]) -> RankReport:
        torch, gpu = self.torch, self.device.type == "cuda"
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpu else None
        return RankReport(
            rank=self.rank,
            world_size=self.world,
            device=str(self.device),
            device_name=torch.cuda.get_device_name(self.device) if gpu else None,
            versions={"torch": str(torch.__version__), "cuda": torch.version.cuda if gpu else None, "nccl": nccl},
            measured=measured,
        )

    def measure(self, name: str, size: int) -> MeasuredCollective:
        """Warm up, then run one checked collective and a timed series in every round."""
        count = elements(size, self.world)
        self.note(f"{name} of {count * 4} bytes, warming up")
        # Every backend has all of them (gloo: since before torch 2.6), so every exception is a failure.
        call, _ = self.prepared(name, count, 0)
        for _ in range(self.options.warm_ups):
            call()
        times, wrong = [], 0
        for number in range(self.options.samples):
            self.note(f"{name} of {count * 4} bytes, round {number + 1} of {self.options.samples}")
            call, check = self.prepared(name, count, number)
            call()
            wrong += check()
            times.append(self.timed(name, count))
        return MeasuredCollective(
            operation=name,
            size=count * 4,
            seconds=tuple(self.slowest(times)),
            checked=self.options.samples,
            wrong=self.total(wrong),
        )

    def timed(self, name: str, count: int) -> float:
        """Return mean seconds of one collective on zeros, which stay exact for any number of sums."""
        torch = self.torch
        call, _ = self.prepared(name, count, None)
        torch.distributed.barrier()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return seconds(torch, self.device, call, self.options.iterations) / self.options.iterations

    def prepared(self, name: str, count: int, number: int | None) -> tuple[Callable[[], object], Callable[[], int]]:
        """Return the collective on new buffers, and a function that counts wrong elements. number None: zeros."""
        torch, distributed, n, me = self.torch, self.torch.distributed, self.world, self.rank
        part = count // n

        def data(rank: int, start: int, length: int) -> Any:
            if number is None:
                return torch.zeros(length, device=self.device)
            index = torch.arange(start, start + length, device=self.device)
            return ((rank + 1) * ((index + number) % PERIOD + 1)).to(torch.float32)

        def summed(start: int, length: int) -> Any:
            return data(0, start, length) * (n * (n + 1) // 2)

        def differs(result: Any, wanted: Any) -> Callable[[], int]:
            return lambda: int((result != wanted).sum())

        if name == "all_reduce":
            buffer = data(me, 0, count)
            return lambda: distributed.all_reduce(buffer), differs(buffer, summed(0, count))
        if name == "broadcast":
            buffer = data(0, 0, count) if me == 0 else torch.full((count,), -1.0, device=self.device)
            return lambda: distributed.broadcast(buffer, 0), differs(buffer, data(0, 0, count))
        if name == "all_gather":
            mine, whole = data(me, 0, part), torch.full((count,), -1.0, device=self.device)
            wanted = torch.cat([data(rank, 0, part) for rank in range(n)])
            return lambda: distributed.all_gather_into_tensor(whole, mine), differs(whole, wanted)
        if name == "reduce_scatter":
            whole, mine = data(me, 0, count), torch.full((part,), -1.0, device=self.device)
            return lambda: distributed.reduce_scatter_tensor(mine, whole), differs(mine, summed(me * part, part))
        if name == "all_to_all":
            there, back = data(me, 0, count), torch.full((count,), -1.0, device=self.device)
            wanted = torch.cat([data(rank, me * part, part) for rank in range(n)])
            return lambda: distributed.all_to_all_single(back, there), differs(back, wanted)
        there, back = data(me, 0, count), torch.full((count,), -1.0, device=self.device)
        return lambda: self.pass_on(there, back), differs(back, data((me - 1) % n, 0, count))

    def pass_on(self, there: Any, back: Any) -> None:
        distributed = self.torch.distributed
        operations = [
            distributed.P2POp(distributed.isend, there, (self.rank + 1) % self.world),
            distributed.P2POp(distributed.irecv, back, (self.rank - 1) % self.world),
        ]
        for request in distributed.batch_isend_irecv(operations):
            request.wait()

    def slowest(self, times: list[float]) -> list[float]:
        together = self.torch.tensor(times, dtype=self.torch.float64, device=self.device)
        self.torch.distributed.all_reduce(together, op=self.torch.distributed.ReduceOp.MAX)
        return [float(value) for value in together.cpu()]

    def total(self, count: int) -> int:
        together = self.torch.tensor([count], dtype=self.torch.int64, device=self.device)
        self.torch.distributed.all_reduce(together)
        return int(together.item())

    def note(self, step: str) -> None:
        """Send the current step, for the report of a rank that hangs."""
        self.sender.send("at", step)


def work(spec: RankSpec, sender: Sender) -> RankReport:
    """Run every collective."""
    import torch

    return Rank(torch, sender, spec).run()


def _kind(error: Exception) -> ErrorKind:
    if isinstance(error, NoDevice):
        return "no-device"
    if isinstance(error, MISTAKES):
        return "defect"
    if isinstance(error, OSError) or exhausted(error) or type(error).__name__ == "OutOfMemoryError":
        return "no-resources"
    return "collective"


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), RankOptions, work, _kind)
