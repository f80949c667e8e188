"""NVML functions of old drivers for which nvidia-ml-py has no wrapper any more.

Source of the structure: nvmlProcessInfo_v1_t in NVIDIA's nvml.h.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
MOST_PROCESSES = 4096


class Process(NamedTuple):
    """What nvmlProcessInfo_v1_t holds. usedGpuMemory: bytes, None where the driver does not count."""

    pid: int
    usedGpuMemory: int | None  # noqa: N815 - as the binding names it


class _ProcessInfo(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def _processes(symbol: str) -> Callable[[Any], list[Process]]:
    def call(handle: Any) -> list[Process]:
        function = pynvml._nvmlGetFunctionPointer(symbol)
        count = ctypes.c_uint(0)
        status = function(handle, ctypes.byref(count), None)
        if status == INSUFFICIENT_SIZE:
            count.value = min(count.value * 2 + 5, MOST_PROCESSES)
            found = (_ProcessInfo * count.value)()
            status = function(handle, ctypes.byref(count), found)
        if status != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(status)
        memory = ((p.pid, p.usedGpuMemory) for p in (found[: count.value] if count.value else ()))
        return [Process(pid, None if used == NOT_AVAILABLE else used) for pid, used in memory]

    return call


OLD: dict[str, Callable[..., Any]] = {
    f"{call}_v1": _processes(call)
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
}
