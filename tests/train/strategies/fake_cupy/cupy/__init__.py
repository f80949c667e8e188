"""CuPy as far as the transfer test uses it, with numpy arrays as the GPUs' memory; FAKE_CUPY says what is wrong."""

import ctypes
import os
from types import SimpleNamespace

import numpy as np

__version__ = "13.9-fake"
int64 = np.int64
_mode = os.environ.get("FAKE_CUPY", "")
_enabled = [False, False]


class _Array(np.ndarray):
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def asarray(values):
    return np.array(values).view(_Array)


def full(size, value, dtype):
    return np.full(size, value, dtype=dtype).view(_Array)


def arange(size, dtype):
    return np.arange(size, dtype=dtype).view(_Array)


def asnumpy(values):
    return np.array(values)


class _Device:
    def __init__(self, number):
        self.number = number

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def synchronize(self):
        return None


class CUDARuntimeError(RuntimeError):
    status = 704


def _count():
    if _mode == "no-driver":
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    return 2


def _enable(other):
    if _enabled[other] or _mode == "enabled-before":
        raise CUDARuntimeError("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
    _enabled[other] = True


def _peer(target, target_device, source, source_device, size):
    if _mode == "never-arrives":
        return
    if _mode == "" and not all(_enabled):
        raise CUDARuntimeError("copied before peer access was enabled in both directions")
    ctypes.memmove(target, source, size)
    if _mode == "damaged" and source_device == 1 and size > 1 << 16:
        ctypes.memset(target + 4096, 0, 512)


cuda = SimpleNamespace(
    Device=_Device,
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=_count,
        getDeviceProperties=lambda number: {"name": b"Fake GPU"},
        deviceGetPCIBusId=lambda number: f"0000:0{3 + number}:00.0",
        runtimeGetVersion=lambda: 12060,
        memcpyPeer=_peer,
        deviceCanAccessPeer=lambda device, other: int(_mode != "no-peers"),
        deviceEnablePeerAccess=_enable,
    ),
)
