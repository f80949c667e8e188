"""CUDA functions of the torch engine in addition to tensors: devices by bus id, events, the gate, error codes."""

import ctypes
from typing import Any

from gpucheck.measure.engines.cuda.errors import OUT_OF_MEMORY
from gpucheck.measure.values import Device

LAST_CODE = 999  # cudaErrorUnknown; the codes above it are not returned by the runtime


class TorchRuntime:
    """gpucheck.measure.engines.cuda.queue.Runtime."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def event(self, stream: Any) -> Any:  # noqa: ARG002 - torch creates it on the device that records it
        """Return a timing event."""
        return self.torch.cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: Any) -> None:
        """Record the event at this point of the stream."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """Let the stream wait."""
        stream.wait_event(event)

    def done(self, event: Any) -> bool:
        """Return whether the event was reached."""
        return bool(event.query())

    def synchronize(self, event: Any) -> None:
        """Wait for the event."""
        event.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two events of one device."""
        return float(start.elapsed_time(end)) / 1e3

    def hold(self, stream: Any, cycles: int) -> None:
        """Queue torch's kernel that spins for clock cycles of the multiprocessor."""
        with self.torch.cuda.stream(stream):
            self.torch.cuda._sleep(cycles)


def library(torch: Any) -> Any:
    """Return the CUDA runtime that torch has loaded, None if it is not found by name."""
    major = (torch.version.cuda or "").partition(".")[0]
    try:
        return ctypes.CDLL(f"libcudart.so.{major}")
    except OSError:
        return None


def error_code(torch: Any, runtime: Any, error: Exception) -> int | None:
    """Return the CUDA error that an exception of torch carries, None for one that is not a CUDA error.

    torch 2.8 and later attach the code. Earlier ones raise a RuntimeError with the runtime's text for it, which is
    compared with all texts of the same runtime.
    """
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return OUT_OF_MEMORY
    code = getattr(error, "error_code", None)
    if isinstance(code, int):
        return code
    text = getattr(runtime, "cudaGetErrorString", None)
    if type(error) is not RuntimeError or text is None:
        return None
    text.restype = ctypes.c_char_p
    line = str(error).partition("\n")[0]
    return next((n for n in range(1, LAST_CODE + 1) if line == f"CUDA error: {text(n).decode()}"), None)


def ordinal(torch: Any, device: Device, runtime: Any) -> int:
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
    queried = ctypes.c_int(-1)
    call = getattr(runtime, "cudaDeviceGetByPCIBusId", None)
    if call is not None and call(ctypes.byref(queried), (device.bus_id or "").encode()) == 0:
        return queried.value
    raise LookupError(
        f"GPU {device.index} ({device.bus_id}) is not among the {count} that torch finds. Unset CUDA_VISIBLE_DEVICES, "
        "or omit the GPU with --devices"
    )
