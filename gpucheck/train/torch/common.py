"""What every torch program of a rank needs: repeatable settings, the model, digests.

torch is handed in, so that this module imports without it.
"""

import ctypes
import gc
import hashlib
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpucheck.train.data import DataSet
from gpucheck.train.models import model_named
from gpucheck.train.report import RankDevice

MOMENTUM = 0.9


def settle(torch: Any, precision: str) -> None:
    """Repeatable kernels, and full float32 unless TF32 is requested: communication is compared, not rounding."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = False
    # The fused attention kernels add up their gradients in no fixed order.
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)
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


def refuse_foreign_code(torch: Any, device: Any) -> None:
    """Raises RuntimeError where the build holds no code for the GPU, before CUDA reports it in a hundred lines."""
    if device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    built = torch.cuda.get_arch_list()
    if built and not runs(built, major, minor):
        raise RuntimeError(
            f"no kernel image is available for {device}, sm_{major}{minor}: torch {torch.__version__} holds "
            + " ".join(built)
        )


def runs(built: Sequence[str], major: int, minor: int) -> bool:
    """Whether code for one of these architectures runs on a GPU of this compute capability.

    Machine code runs on its own major from its minor on, PTX (``compute_90``) on everything newer; names that end in
    ``a`` or ``f`` are for their own family. Source: CUDA C++ programming guide, application compatibility.
    """
    for name in built:
        kind, _, number = name.partition("_")
        digits = number.rstrip("af")
        own, least = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and own == major and (least == minor or (least < minor and not number.endswith("a"))):
            return True
        if kind == "compute" and digits == number and (own, least) <= (major, minor):
            return True
    return False


def open_device(torch: Any, device: Any) -> None:
    """Create the CUDA context with one small computation and check its result. Nothing to do on a CPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        total = torch.ones(1024, device=device).sum().item()
        if total != 1024.0:
            raise RuntimeError(f"{device} adds 1024 ones to {total}")


def versions(torch: Any) -> dict[str, str | None]:
    """Versions of what took part, as the libraries themselves report them; None is "not in this build"."""
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


def build_layers(torch: Any, name: str, seed: int) -> list[Any]:
    """The layers of the model on the CPU, in order; equal seeds give equal parameters whatever the device."""
    torch.manual_seed(seed)
    return model_named(name).torch_layers(torch)


def build_model(torch: Any, name: str, seed: int, device: Any) -> Any:
    return torch.nn.Sequential(*build_layers(torch, name, seed)).to(device)


def build_optimizer(torch: Any, parameters: Any, name: str, *, frozen: bool = False) -> Any:
    """Return SGD with momentum, at the learning rate of the model, 0 if frozen."""
    # Adam would divide rounding noise by its own size and blur the reference.
    return torch.optim.SGD(parameters, lr=0.0 if frozen else model_named(name).learning_rate, momentum=MOMENTUM)


def autocast(torch: Any, device: Any, precision: str) -> Any:
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device.type, dtype=low, enabled=low is not None)


def load(torch: Any, model: Any, values: list[Any]) -> Any:
    """The model with these parameters."""
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
    return model


def accuracy(torch: Any, model: Any, samples: DataSet, device: Any) -> float:
    """Share of the held-out samples that the model gets right."""
    with torch.no_grad():
        guesses = model(torch.from_numpy(samples.held_out_images).to(device)).argmax(dim=1).cpu()
    return float((guesses == torch.from_numpy(samples.held_out_labels)).float().mean())


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


def number(value: float) -> float | None:
    """The value, or None for infinity and "not a number"."""
    return value if math.isfinite(value) else None


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
