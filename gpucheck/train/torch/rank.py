"""A torch rank from the import to its data: rendezvous, agreement on devices, first use. And its shared report."""

import os
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gpucheck.processes.ranks.nodes import leave_store, open_store
from gpucheck.processes.ranks.run_directory import RunDirectory
from gpucheck.train import data
from gpucheck.train.data import DataSet
from gpucheck.train.placement import RankPlacement, plan
from gpucheck.train.progress import Progress
from gpucheck.train.report import RankDevice, RankReport
from gpucheck.train.spec import NVLS, RankSpec, SmokeOptions, unsupported
from gpucheck.train.torch import common

# Added to the supervisor's deadline: it must be the shorter one, so that stacks are taken before a rank times out.
PATIENCE_S = 60.0
# What NCCL takes of /dev/shm for a pair of ranks, and a loader for a batch; measured figures vary with both.
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # the kernel's own name, nothing is written there
SHARED_MEMORY_BYTES = 64 << 20


class Rank(NamedTuple):
    """A rank that is ready to train. devices: torch's, its own; described: the same for the report."""

    torch: Any
    spec: RankSpec
    progress: Progress
    store: Any
    where: RankPlacement
    devices: tuple[Any, ...]
    described: tuple[RankDevice, ...]
    samples: DataSet

    @property
    def options(self) -> SmokeOptions:
        return self.spec.options

    @property
    def device(self) -> Any:
        return self.devices[0]


class View(msgspec.Struct, frozen=True):
    """What one rank's torch sees; all ranks must see the same."""

    torch: str
    cuda: str | None
    gpus: int
    nccl: bool


def open_rank(spec: RankSpec, directory: RunDirectory, progress: Progress, *, group: bool) -> Rank:
    """From the import to the data. group: also join the process group. Raises whatever torch raises."""
    progress.enter("import")
    import torch
    import torch.distributed as dist

    options = spec.options
    common.settle(torch, options.precision)
    progress.enter("init")
    patience_s = options.timeout_s + PATIENCE_S
    store = open_store(dist, directory.store, options.nodes, spec.rank, spec.processes, patience_s)
    where = agree(store, spec, view(torch))
    numbers = [spec.local_rank] if spec.processes > 1 or group else range(options.world_size)
    devices = tuple(torch.device(where.device(number)) for number in numbers)
    described = tuple(common.identity(torch, device) for device in devices)
    progress.on_device(str(devices[0]), described[0].bus_id)

    progress.enter("device")
    for device in reversed(devices):  # the first one stays the current device
        _refuse(torch, device, options.precision)
        common.open_device(torch, device)
    if where.backend == "nccl":
        _room_for_shared_memory()
    progress.enter("connect")
    if options.variant == NVLS and where.backend == "nccl":
        os.environ["NCCL_ALGO"] = nvls_only(torch.cuda.nccl.version())
    if group:
        dist.init_process_group(
            where.backend,
            store=store,
            rank=spec.rank,
            world_size=spec.processes,
            timeout=timedelta(seconds=patience_s),
            # NCCL then connects here and not in the first collective
            device_id=devices[0] if where.backend == "nccl" else None,
        )
    progress.enter("data")
    samples = data.load(options.data, options.seed)
    return Rank(torch, spec, progress, store, where, devices, described, samples)


def nvls_only(nccl: tuple[int, ...]) -> str:
    """Return NCCL_ALGO that makes this version of NCCL sum in the switch, at any size.

    With NCCL_ALGO unset torch sets ^NVLS in deterministic mode (pytorch pull request 156381, from 2.8 on). Up to NCCL
    2.23 the variable holds for all collectives, and those without NVLS keep the ring; from 2.24 on they would fail, and
    a prefix names the collective (NVIDIA/nccl, src/graph/tuning.cc).
    """
    return "allreduce:nvls" if nccl >= (2, 24) else "NVLS"


def _refuse(torch: Any, device: Any, precision: str) -> None:
    capability = ".".join(map(str, torch.cuda.get_device_capability(device))) if device.type == "cuda" else None
    problem = unsupported(precision, capability)
    if problem is not None:
        raise ValueError(problem)
    common.refuse_foreign_code(torch, device)


def _room_for_shared_memory(path: str = SHARED_MEMORY, wanted: int = SHARED_MEMORY_BYTES) -> None:
    """Raises OSError where shared memory is short, which NCCL meets as a bus error."""
    state = os.statvfs(path)
    free = state.f_bavail * state.f_frsize
    if free < wanted:
        raise OSError(f"shared memory is short: {path} has {free >> 20} MiB free, {wanted >> 20} MiB are needed")


def view(torch: Any) -> View:
    """What this process sees. Counting GPUs makes no CUDA context."""
    gpus = torch.cuda.device_count() if torch.version.cuda else 0
    return View(str(torch.__version__), torch.version.cuda, gpus, torch.distributed.is_nccl_available())


def agree(store: Any, spec: RankSpec, mine: View) -> RankPlacement:
    """The plan that rank 0's view leads to. Raises RuntimeError when this rank sees something else."""
    if spec.rank == 0:
        store.set("view", msgspec.json.encode(mine))
    of_rank_0 = msgspec.json.decode(store.get("view"), type=View)
    if of_rank_0 != mine:
        raise RuntimeError(f"rank {spec.rank} sees {mine}, rank 0 sees {of_rank_0}")
    nodes = spec.options.nodes
    here = spec.options.world_size // (nodes.count if nodes else 1)
    mig = len(spec.options.mig_uuids) > 1 and spec.processes > 1
    return plan(here, visible_gpus=mine.gpus, build_cuda=mine.cuda, build=mine.torch, nccl=mine.nccl, mig=mig)


def share(rank: Rank, report: RankReport, directory: RunDirectory) -> RankReport:
    """Over several hosts: leave every host the reports of all ranks. Rank 0, which may serve the store, goes last."""
    nodes, spec, store = rank.options.nodes, rank.spec, rank.store
    if nodes is None:
        return report
    store.set(f"report/{spec.rank}", msgspec.json.encode(report))
    here = spec.processes // nodes.count
    if spec.local_rank == 0:
        for other in range(spec.processes):
            if other // here != nodes.rank:
                directory.shared_report(other).write_bytes(store.get(f"report/{other}"))
    leave_store(store, spec.rank, spec.processes)
    return report
