"""What every torch program of a rank needs: agreement on devices, repeatable settings, the model, digests.

torch is handed in, so that this module imports without it.
"""

import hashlib
import math
import platform
from collections.abc import Iterable
from typing import Any

import msgspec

from gpucheck.train import data
from gpucheck.train.placement import Plan, plan
from gpucheck.train.spec import RankSpec

MODEL = "mlp"
HIDDEN = 128
LEARNING_RATE = 0.1
MOMENTUM = 0.9


class View(msgspec.Struct, frozen=True):
    """What one rank's torch sees; all ranks must see the same."""

    torch: str
    cuda: str | None
    gpus: int
    nccl: bool


def view(torch: Any) -> View:
    """What this process sees. Counting GPUs makes no CUDA context."""
    gpus = torch.cuda.device_count() if torch.version.cuda else 0
    return View(str(torch.__version__), torch.version.cuda, gpus, torch.distributed.is_nccl_available())


def agree(store: Any, spec: RankSpec, mine: View) -> Plan:
    """The plan that rank 0's view leads to. Raises RuntimeError when this rank sees something else."""
    if spec.rank == 0:
        store.set("view", msgspec.json.encode(mine))
    theirs = msgspec.json.decode(store.get("view"), type=View)
    if theirs != mine:
        raise RuntimeError(f"rank {spec.rank} sees {mine}, rank 0 sees {theirs}")
    return plan(spec.options.world_size, visible_gpus=mine.gpus, build_cuda=mine.cuda, build=mine.torch, nccl=mine.nccl)


def identity(torch: Any, device: Any) -> tuple[str | None, str | None]:
    """The GPU's name and its PCI bus id; older builds do not tell the latter."""
    if device.type == "cpu":
        return None, None
    properties = torch.cuda.get_device_properties(device)
    if not hasattr(properties, "pci_bus_id"):
        return properties.name, None
    domain = getattr(properties, "pci_domain_id", 0)
    return properties.name, f"{domain:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def settle(torch: Any) -> None:
    """Full float32 and repeatable kernels: the comparison with the reference is about communication, not rounding."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False
    # In torch 2.13 this is the call that imports torch._dynamo, 800 modules that DDP would import a moment later.
    torch.use_deterministic_algorithms(True)


def open_device(torch: Any, device: Any) -> None:
    """Make the CUDA context, with one small computation that must come back right. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        total = torch.ones(1024, device=device).sum().item()
        if total != 1024.0:
            raise RuntimeError(f"{device} adds 1024 ones to {total}")


def versions(torch: Any) -> dict[str, str | None]:
    """Versions of what took part, as the libraries themselves say; None is "not in this build"."""
    cuda = torch.version.cuda
    nccl = torch.cuda.nccl.version() if cuda and torch.distributed.is_nccl_available() else None
    cudnn = torch.backends.cudnn.version() if cuda else None
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": cuda,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "cudnn": str(cudnn) if cudnn else None,
    }


def build_model(torch: Any, seed: int, device: Any) -> Any:
    """A multilayer perceptron of 101770 parameters; equal seeds give equal parameters on every device."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(data.PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, data.CLASSES))
    return torch.nn.Sequential(*layers).to(device)


def build_optimizer(torch: Any, model: Any, learning_rate: float = LEARNING_RATE) -> Any:
    """SGD with momentum. Adam would divide rounding noise by its own size and blur the reference."""
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM)


def accuracy(torch: Any, model: Any, samples: data.DataSet, device: Any) -> float:
    """Share of the held-out samples that the model gets right."""
    with torch.no_grad():
        guesses = model(torch.from_numpy(samples.held_out_images).to(device)).argmax(dim=1).cpu()
    return float((guesses == torch.from_numpy(samples.held_out_labels)).float().mean())


def synchronize(torch: Any, device: Any) -> None:
    """Wait for the GPU, so that a hang and a second are booked in the phase they belong to. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def number(value: float) -> float | None:
    """The value, or None for infinity and "not a number"."""
    return value if math.isfinite(value) else None


def raw(tensor: Any) -> Any:
    """The tensor's bytes, on the host."""
    return memoryview(tensor.detach().cpu().contiguous().numpy()).cast("B")


def digest(tensors: Iterable[Any]) -> str:
    """SHA-256 over the bytes of all tensors, in order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(raw(tensor))
    return sha.hexdigest()
