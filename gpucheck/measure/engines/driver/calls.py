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
from typing import Any

from gpucheck.measure.engines.cuda_errors import error_text


class CudaError(Exception):
    """A call returned an error. code: CUresult, whose numbers are those of cudaError_t."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{error_text(code)} from {call}")
        self.call = call
        self.code = code


class MissingCall(Exception):
    """The installed libcuda.so.1 has no such function, or there is no libcuda.so.1 (then call is cuInit)."""

    def __init__(self, call: str) -> None:
        super().__init__(f"libcuda.so.1 has no {call}")
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
