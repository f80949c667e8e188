"""Calls of the CUDA driver API through cuda.bindings: return the results of a call, or raise its error code.

All functions of libcuda.so.1 that the engine uses, available since driver 525:
cuInit, cuDriverGetVersion, cuDeviceGetByPCIBusId, cuDeviceGetAttribute, cuDeviceCanAccessPeer,
cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess, cuMemGetInfo, cuMemAlloc,
cuMemFree, cuMemHostAlloc, cuMemHostGetDevicePointer, cuStreamCreate, cuStreamSynchronize, cuStreamWaitValue32,
cuStreamWaitEvent, cuEventCreate, cuEventRecord, cuEventSynchronize, cuEventElapsedTime, cuMemcpyPeerAsync,
cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel.
For fabric handles, since driver 545: those of fabric.py, and cuMemcpyAsync.
"""

import ctypes
from pathlib import Path
from typing import Any

from gpucheck.host.nvml.supervisor import query_child
from gpucheck.knowledge.xid import cuda_error_text
from gpucheck.measure.planning.selection import COPIES
from gpucheck.measure.values import NotOpened
from gpucheck.model import NvmlReading
from gpucheck.model.device import Device


class CudaError(Exception):
    """A call returned an error. code: CUresult, whose numbers are those of cudaError_t."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{cuda_error_text(code)} from {call}")
        self.call = call
        self.code = code


class MissingCall(Exception):
    """The installed libcuda.so.1 has no such function, or there is no libcuda.so.1 (then call is cuInit)."""

    def __init__(self, call: str) -> None:
        super().__init__("libcuda.so.1 is missing" if call == "cuInit" else f"libcuda.so.1 has no {call}")
        self.call = call


class Calls:
    """``calls("cuMemAlloc", size)`` returns the results of the function without its status.

    names: the module, for its enumerations. Raises ModuleNotFoundError, and with each call CudaError or MissingCall.
    """

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.names = driver
        self._elapsed: Any = None

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Return one value, several as a list, None without values."""
        try:
            status, *values = getattr(self.names, name)(*arguments)
        except RuntimeError as error:  # raised by cuda.bindings for a missing function or library
            raise MissingCall(name) from error
        if status:
            raise CudaError(name, int(status))
        return values[0] if len(values) == 1 else values or None

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two events of one context. Raises CudaError, MissingCall.

        cuda-bindings 13 uses cuEventElapsedTime of CUDA 12.8; drivers before 570 have only that of CUDA 2.0, under the
        plain name.
        """
        if self._elapsed is None:
            try:
                return float(self("cuEventElapsedTime", start, end)) / 1e3
            except MissingCall as error:
                self._elapsed = getattr(ctypes.CDLL("libcuda.so.1"), error.call, None)
                if self._elapsed is None:
                    raise
                self._elapsed.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        milliseconds = ctypes.c_float()
        code = self._elapsed(ctypes.byref(milliseconds), int(start), int(end))
        if code:
            raise CudaError("cuEventElapsedTime", code)
        return milliseconds.value / 1e3


UVM, WSL = Path("/dev/nvidia-uvm"), Path("/dev/dxg")
NOT_READY = 802
NVML_S = 20.0
# By CUresult: what it means during context creation.
REASONS = {
    2: "measure.cuda-no-memory",
    3: "measure.cuda-shutting-down",
    36: "measure.cuda-stub-library",
    46: "measure.cuda-gpu-exclusive",
    100: "measure.cuda-no-device",
    209: "measure.cuda-no-kernel",
    218: "measure.cuda-kernels-rejected",
    221: "measure.cuda-no-compiler",
    222: "measure.cuda-driver-old",
    223: "measure.cuda-compiler-disabled",
    NOT_READY: "measure.cuda-fabric-not-ready",
    803: "measure.cuda-library-mismatch",
    804: "measure.cuda-compat-unsupported",
    805: "measure.mps-not-reached",
    806: "measure.mps-server-failed",
    807: "measure.mps-not-ready",
    808: "measure.mps-full",
    809: "measure.mps-full",
}
OTHER, UVM_MISSING = "measure.cuda-not-started", "measure.uvm-missing"
CONFIDENTIAL = "measure.gpus-not-attested"


def not_opened(error: CudaError, where: str, uvm: Path = UVM) -> NotOpened:
    """Return the exception to raise. where: the device, as in ``GPU 0 (0000:1b:00.0)``; empty for CUDA itself."""
    code = REASONS.get(error.code, OTHER)
    # Without the device node cuInit ends with 999 (unknown error), 100 or 304, by driver version.
    if error.call == "cuInit" and error.code in (100, 304, 999) and not uvm.exists() and not WSL.exists():
        code = UVM_MISSING
    if error.code == NOT_READY and _awaits_attestation():
        code = CONFIDENTIAL
    return NotOpened(COPIES.unknown(code, error=str(error)), where)


def _awaits_attestation() -> bool:
    """Ask NVML, in a child process, because a driver that is not ready may not answer."""
    reading = query_child(NVML_S, health=False)
    state = reading.confidential if isinstance(reading, NvmlReading) else None
    return state is not None and state.enabled and state.ready is False


def missing(error: MissingCall, driver: str | None, bindings: str | None) -> NotOpened:
    """Return the exception to raise for a driver without a function that is needed. driver: its CUDA version."""
    if error.call == "cuInit":
        return NotOpened(COPIES.unknown("measure.libcuda-missing"))
    return NotOpened(
        COPIES.unknown("measure.driver-call-missing", call=error.call, driver_cuda=driver, bindings=bindings)
    )


def hidden(device: Device) -> NotOpened:
    """Return the exception to raise for a GPU that NVML lists and CUDA does not show to this process."""
    return NotOpened(COPIES.unknown("measure.gpu-hidden", hidden=device.index, bus_id=device.bus_id))
