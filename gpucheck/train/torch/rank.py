"""A torch rank from the import to its data: rendezvous, agreement on devices, first use. And its shared report."""

import ctypes
import gc
import hashlib
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from gpucheck.model.smoke import NVLS
from gpucheck.processes.ranks.nodes import leave_store, open_store
from gpucheck.train import data
from gpucheck.train.models import MODELS
from gpucheck.train.progress import Progress, RankDevice, RankReport
from gpucheck.train.session import Rank
from gpucheck.train.spec import RankPlacement, RankSpec, Rejected, plan, unsupported

# Added to the supervisor's deadline: it must be the shorter one, so that stacks are taken before a rank times out.
PATIENCE_S = 60.0


def open_rank(spec: RankSpec, progress: Progress, *, group: bool) -> Rank:
    """From the import to the data. group: also join the process group. Raises whatever torch raises."""
    progress.enter("import")
    import torch
    import torch.distributed as dist

    options = spec.options
    settle(torch, options.precision)
    progress.enter("init")
    patience_s = options.start_s + options.timeout_s + PATIENCE_S
    store = open_store(dist, spec.store, options.nodes, spec.rank, spec.processes, patience_s)
    where = agree(store, spec, view(torch))
    numbers = [spec.local_rank] if spec.processes > 1 or group else range(options.world_size)
    devices = tuple(torch.device(where.device(number)) for number in numbers)
    described = tuple(identity(torch, device) for device in devices)
    progress.on_device(str(devices[0]), described[0].bus_id)

    progress.enter("device")
    for device in reversed(devices):  # the first one stays the current device
        refuse(torch, device, options.precision)
        open_device(torch, device)
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
    where = where if group else where._replace(backend="torch copies")
    return Rank(spec, progress, where, described, versions(torch), samples, torch, store, devices, group)


def nvls_only(nccl: tuple[int, ...]) -> str:
    """Return NCCL_ALGO that makes this version of NCCL sum in the switch, at any size.

    With NCCL_ALGO unset torch sets ^NVLS in deterministic mode (pytorch pull request 156381, from 2.8 on). Up to NCCL
    2.23 the variable holds for all collectives, and those without NVLS keep the ring; from 2.24 on they would fail, and
    a prefix names the collective (NVIDIA/nccl, src/graph/tuning.cc).
    """
    return "allreduce:nvls" if nccl >= (2, 24) else "NVLS"


def refuse(torch: Any, device: Any, precision: str) -> None:
    capability = ".".join(map(str, torch.cuda.get_device_capability(device))) if device.type == "cuda" else None
    problem = unsupported(precision, capability)
    if problem is not None:
        raise Rejected("precision", problem)


def view(torch: Any) -> dict[str, Any]:
    """What this process sees, as ``plan`` gets it. Counting GPUs makes no CUDA context."""
    cuda = torch.version.cuda
    gpus, nccl = torch.cuda.device_count() if cuda else 0, torch.distributed.is_nccl_available()
    return {"visible_gpus": gpus, "build_cuda": cuda, "build": str(torch.__version__), "nccl": nccl}


def agree(store: Any, spec: RankSpec, mine: dict[str, Any]) -> RankPlacement:
    """The plan that rank 0's view leads to. Raises RuntimeError when this rank sees something else."""
    if spec.rank == 0:
        store.set("view", msgspec.json.encode(mine))
    of_rank_0 = msgspec.json.decode(store.get("view"))
    if of_rank_0 != mine:
        raise RuntimeError(f"rank {spec.rank} sees {mine}, rank 0 sees {of_rank_0}")
    here = spec.options.world_size // (spec.options.nodes.count if spec.options.nodes else 1)
    return plan(here, mig=len(spec.options.mig_uuids) > 1 and spec.processes > 1, **mine)


def share(rank: Rank, report: RankReport) -> RankReport:
    """Over several hosts: leave every host the reports of all ranks. Rank 0, which may serve the store, goes last."""
    nodes, spec, store = rank.options.nodes, rank.spec, rank.store
    if nodes is None or not rank.group:
        return report
    store.set(f"report/{spec.rank}", msgspec.json.encode(report))
    here = spec.processes // nodes.count
    if spec.local_rank == 0:
        for other in range(spec.processes):
            if other // here != nodes.rank:
                rank.progress.sender.send("shared", msgspec.Raw(store.get(f"report/{other}")))
    leave_store(store, spec.rank, spec.processes)
    return report


# torch is handed in, so that this module imports without it.


def settle(torch: Any, precision: str) -> None:
    """Repeatable kernels, and full float32 unless TF32 is requested: communication is compared, not rounding."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = False
    # In torch 2.13 this is the call that imports torch._dynamo, 800 modules that DDP would import a moment later.
    torch.use_deterministic_algorithms(True)


def identity(torch: Any, device: Any) -> RankDevice:
    """Return the device with its GPU's name and PCI bus id; older builds do not report the latter."""
    if device.type == "cpu":
        return RankDevice(name=str(device))
    properties = torch.cuda.get_device_properties(device)
    bus_id = None
    if hasattr(properties, "pci_bus_id"):
        domain = getattr(properties, "pci_domain_id", 0)
        bus_id = f"{domain:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return RankDevice(name=str(device), model=properties.name, bus_id=bus_id)


def open_device(torch: Any, device: Any) -> None:
    """Create the CUDA context with one small computation and check its result. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        total = torch.ones(1024, device=device).sum().item()
        if total != 1024.0:
            raise Rejected("sum", f"{device} adds 1024 ones to {total}")


def versions(torch: Any) -> dict[str, str | None]:
    """Versions of what took part, as the libraries themselves report them; None is "not in this build"."""
    cuda = torch.version.cuda
    nccl = torch.cuda.nccl.version() if cuda and torch.distributed.is_nccl_available() else None
    cudnn = torch.backends.cudnn.version() if cuda else None
    return {
        "torch": str(torch.__version__),
        "cuda": cuda,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "cudnn": str(cudnn) if cudnn else None,
    }


def build_layers(torch: Any, name: str, seed: int) -> list[Any]:
    """The layers of the model on the CPU, in order; equal seeds give equal parameters whatever the device."""
    torch.manual_seed(seed)
    return MODELS[name].torch_layers(torch)


def build_model(torch: Any, name: str, seed: int, device: Any) -> Any:
    return torch.nn.Sequential(*build_layers(torch, name, seed)).to(device)


def autocast(torch: Any, device: Any, precision: str) -> Any:
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device.type, dtype=low, enabled=low is not None)


def synchronize(torch: Any, device: Any) -> None:
    """Wait for the GPU, so that a hang and a second are booked in the phase they belong to. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory_in_use(torch: Any, device: Any) -> int:
    """Bytes that tensors hold on the GPU, or that this process holds on the host, after everything unused has gone."""
    gc.collect()
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def whole(tensor: Any) -> Any:
    """All of a tensor that is spread over the ranks (a collective call), any other as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def raw(tensor: Any) -> Any:
    return memoryview(tensor.detach().cpu().contiguous().numpy()).cast("B")


def digest(tensors: Iterable[Any]) -> str:
    """SHA-256 over the bytes of all tensors, in order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(raw(whole(tensor)))
    return sha.hexdigest()
