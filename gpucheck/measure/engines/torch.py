"""What ranks and computing processes need of torch, which is handed in: the device that a GPU is, and its clock."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

from gpucheck.model.device import Device


def ordinal(torch: Any, device: Device) -> int:
    """Return the CUDA device with this bus id. Raises LookupError if this process cannot use it.

    Older builds of torch report neither bus id nor UUID; then the CUDA runtime is queried.
    """
    count = torch.cuda.device_count()
    for number in range(count):
        properties = torch.cuda.get_device_properties(number)
        domain, bus = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_bus_id", None)
        if bus is not None and f"{domain:04x}:{bus:02x}:{properties.pci_device_id:02x}.0" == device.bus_id:
            return number
        if device.uuid and f"GPU-{getattr(properties, 'uuid', '')}" == device.uuid:
            return number
    queried, call = ctypes.c_int(-1), getattr(_runtime(torch), "cudaDeviceGetByPCIBusId", None)
    if call is not None and call(ctypes.byref(queried), (device.bus_id or "").encode()) == 0:
        return queried.value
    build = "" if torch.version.cuda else ", a build for CPUs,"
    raise LookupError(
        f"GPU {device.index} ({device.bus_id}) is not among the {count} that torch {torch.__version__}{build} finds. "
        "Unset CUDA_VISIBLE_DEVICES, or omit the GPU with --devices"
    )


def _runtime(torch: Any) -> Any:
    """Return the CUDA runtime that torch has loaded, None if it is not found by name."""
    major = (torch.version.cuda or "").partition(".")[0]
    try:
        return ctypes.CDLL(f"libcudart.so.{major}")
    except OSError:
        return None


def seconds(torch: Any, device: Any, once: Callable[[], object], repeats: int) -> float:
    """Return the time of so many, by the GPU's own clock if there is one. device: torch's."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(repeats):
            once()
        return max(time.perf_counter() - began, 1e-9)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        once()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
