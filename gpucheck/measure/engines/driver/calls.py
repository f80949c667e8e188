"""Calls of the CUDA driver API through cuda.bindings: the results of a call, or an exception that carries its code.

Everything the engine asks of libcuda.so.1, all of it since driver 525:
cuInit, cuDriverGetVersion, cuDeviceGetByPCIBusId, cuDeviceGetAttribute, cuDeviceCanAccessPeer,
cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuCtxEnablePeerAccess, cuCtxDisablePeerAccess, cuMemGetInfo, cuMemAlloc,
cuMemFree, cuMemHostAlloc, cuMemHostGetDevicePointer, cuStreamCreate, cuStreamSynchronize, cuStreamWaitValue32,
cuEventCreate, cuEventRecord, cuEventSynchronize, cuEventElapsedTime, cuMemcpyPeerAsync, cuMemcpyHtoDAsync,
cuMemcpyDtoHAsync, cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel.
"""

import ctypes
from typing import Any

from gpucheck.measure.engines.cuda.errors import error_text


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
    """``calls("cuMemAlloc", size)`` returns what the function returns beside its status.

    names: the module, for its enumerations. Raises ModuleNotFoundError, and with each call CudaError or MissingCall.
    """

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.names = driver
        self._elapsed: Any = None

    def __call__(self, name: str, *arguments: Any) -> Any:
        """One value as it is, several as a list, None for none."""
        try:
            status, *values = getattr(self.names, name)(*arguments)
        except RuntimeError as error:  # what cuda.bindings raises for a function or library that it does not find
            raise MissingCall(name) from error
        if status:
            raise CudaError(name, int(status))
        return values[0] if len(values) == 1 else values or None

    def seconds(self, start: Any, end: Any) -> float:
        """Between two events of one context. Raises CudaError, MissingCall.

        cuda-bindings 13 looks up the version of cuEventElapsedTime that came with CUDA 12.8; before driver 570 there is
        the one from CUDA 2.0 alone, under the plain name.
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
