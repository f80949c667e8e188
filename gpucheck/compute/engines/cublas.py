"""NVIDIA's cuBLAS and the CUDA driver on one GPU, without torch: matrix products, writes and copies of memory.

Numbers and prototypes: cublas_api.h of cuBLAS 13.10, library_types.h of CUDA 13.0. Equal repeats: "Results
reproducibility" in NVIDIA's cuBLAS documentation: while one stream is active, and here there is one, all routines of a
version give the same bits in every run on GPUs of one architecture with as many multiprocessors.
"""

import ctypes
import struct
import zlib
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from gpucheck.compute.engines.engine import DEPTH, MODULUS, MULTIPLIER, Engine, scale_of
from gpucheck.compute.values import Answer, ComputeStep, Opened, Setup
from gpucheck.host.simulated import preload
from gpucheck.measure.engines.driver.calls import Calls, CudaError
from gpucheck.model.compute import CUBLAS

# CUDA_R_32F, _16F, _8I, _32I, _16BF; CUBLAS_COMPUTE_32F, _32F_FAST_TF32, _32I.
R_32F, R_16F, R_8I, R_32I, R_16BF, BY_32F, BY_TF32, BY_32I = 0, 2, 3, 10, 14, 68, 77, 72
# Of operands and result, what computes, bytes of an operand and of a result.
TYPES = {
    "fp32": (R_32F, R_32F, BY_32F, 4, 4),
    "tf32": (R_32F, R_32F, BY_TF32, 4, 4),
    "bf16": (R_16BF, R_16BF, BY_32F, 2, 2),
    "fp16": (R_16F, R_16F, BY_32F, 2, 2),
    "int8": (R_8I, R_32I, BY_32I, 1, 4),
}
TRANSPOSED, AS_IT_IS, DEFAULT_ALGORITHM = 1, 0, -1  # CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_GEMM_DEFAULT
ALLOC_FAILED, INVALID_VALUE, NOT_SUPPORTED = 3, 7, 15  # CUBLAS_STATUS
ONE = 0x3F800000  # 1.0 as float32
TILE = 65521  # values after which those of a matrix repeat: a prime, so that its rows differ
# CUdevice_attribute.
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76


class Matrix(NamedTuple):
    """Rows in the memory of the GPU, one after the other."""

    address: int
    rows: int
    columns: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.columns * self.itemsize


def loaded() -> ctypes.CDLL:
    """Return libcublas of a wheel, conda, the loader or CUDA_HOME. Raises ModuleNotFoundError if none has it."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        library = ctypes.CDLL(str(load_nvidia_dynamic_lib("cublas").abs_path))
    except DynamicLibNotFoundError as error:
        raise ModuleNotFoundError(str(error), name=CUBLAS) from error
    number, pointer = ctypes.c_int, ctypes.c_void_p
    operand = (pointer, number, number)
    library.cublasGetStatusString.restype = ctypes.c_char_p
    library.cublasGemmEx.argtypes = (
        *(pointer, *(number,) * 5, pointer, *operand, *operand, pointer, *operand, number, number),
    )
    return library


def tile(type_: str, seed: int, scale: float) -> bytes:
    """Return the first values of torch's engine, whole numbers from -127 to 127, in the format of the type.

    scale: a power of two, so that every type has each value exactly.
    """
    mixed = ((number + seed * 7919) * MULTIPLIER % MODULUS for number in range(TILE))
    whole = [((one ^ (one >> 15)) * MULTIPLIER % MODULUS >> 16) % 255 - 127 for one in mixed]
    if type_ == "int8":
        return array("b", whole).tobytes()
    parts = array("f", (number * scale / 128 for number in whole))
    if type_ == "fp16":
        return struct.pack(f"{TILE}e", *parts)
    if type_ == "bf16":  # the upper half of a little-endian float32
        return array("H", memoryview(parts).cast("B").cast("H")[1::2].tolist()).tobytes()
    return parts.tobytes()


class CublasEngine(Engine):
    """Raises RuntimeError with the status of cuBLAS, and CudaError or MissingCall of the driver.

    NotImplementedError for a call that cuBLAS rejects, which is no fault of the GPU.
    """

    rows = 4096  # fewer than with torch, because every result is copied to the host
    without = ("read", "reduction", "attention")

    def open(self, setup: Setup) -> Opened:
        """Open the GPU. Raises ModuleNotFoundError without cuBLAS."""
        self.begin(setup)
        self.library = loaded()
        preload("libcuda.so.1")
        self.calls = calls = Calls()
        self._buffers: list[int] = []
        self._results: dict[int, list[int]] = {}
        calls("cuInit", 0)
        driver = calls("cuDriverGetVersion")
        # With MIG, CUDA shows the instance alone.
        bus_id = (self.bus_id or "").encode()
        self.device = calls("cuDeviceGet", 0) if self.mig else calls("cuDeviceGetByPCIBusId", bus_id)
        calls("cuCtxSetCurrent", calls("cuDevicePrimaryCtxRetain", self.device))
        self.stream = calls("cuStreamCreate", calls.names.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.begun, self.ended = calls("cuEventCreate", 0), calls("cuEventCreate", 0)
        self.pinned = int(calls("cuMemHostAlloc", self.rows * DEPTH * 4, 0))
        self.handle, number = ctypes.c_void_p(), ctypes.c_int()
        self._ask("cublasCreate_v2", ctypes.byref(self.handle))
        self._ask("cublasSetStream_v2", self.handle, ctypes.c_void_p(int(self.stream)))
        self._ask("cublasGetVersion_v2", self.handle, ctypes.byref(number))
        version = f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
        capability = f"{self.attribute(CAPABILITY_MAJOR)}.{self.attribute(CAPABILITY_MINOR) or 0}"
        versions: dict[str, str | None] = {CUBLAS: version, "cuda driver": f"{driver // 1000}.{driver % 1000 // 10}"}
        opened = self.opened(f"{CUBLAS} {version}", capability, self.attribute(MULTIPROCESSORS), versions)
        self._free()
        return opened

    def run(self, step: ComputeStep) -> Answer:
        """Run one step, and free its memory. After an error the process ends."""
        answer = super().run(step)
        self._free()
        return answer

    def _ask(self, call: str, *arguments: Any) -> None:
        status = getattr(self.library, call)(*arguments)
        if status:
            text = self.library.cublasGetStatusString(status).decode()
            memory = "out of memory: " if status == ALLOC_FAILED else ""
            kind = NotImplementedError if status in (INVALID_VALUE, NOT_SUPPORTED) else RuntimeError
            raise kind(f"{memory}cuBLAS status {status} ({text}) from {call}")

    def attribute(self, which: int) -> int | None:
        try:
            found = self.calls("cuDeviceGetAttribute", self.calls.names.CUdevice_attribute(which), self.device)
        except CudaError:
            return None
        return int(found) or None

    def seconds(self, once: Callable[[], object], repeats: int) -> float:
        self.calls("cuEventRecord", self.begun, self.stream)
        for _ in range(repeats):
            once()
        self.calls("cuEventRecord", self.ended, self.stream)
        self.calls("cuEventSynchronize", self.ended)
        return max(self.calls.seconds(self.begun, self.ended), 1e-9)

    def wait(self) -> None:
        self.calls("cuStreamSynchronize", self.stream)

    def _allocate(self, size: int) -> int:
        self._buffers.append(int(self.calls("cuMemAlloc", size)))
        return self._buffers[-1]

    def _free(self) -> None:
        self._results.clear()
        while self._buffers:
            self.calls("cuMemFree", self._buffers.pop())

    def pair(self, type_: str, rows: int, depth: int, columns: int) -> tuple[Matrix, Matrix]:
        """Return both with ``depth`` values a row: the right one is transposed."""
        return self._matrix(type_, rows, depth, 1, 1.0), self._matrix(type_, columns, depth, 2, scale_of(depth))

    def _matrix(self, type_: str, rows: int, depth: int, seed: int, scale: float) -> Matrix:
        """Copy the tile to the GPU once, then double what is there."""
        if type_ not in TYPES:
            raise NotImplementedError(f"{type_} needs torch")
        itemsize = TYPES[type_][3]
        made = Matrix(self._allocate(rows * depth * itemsize), rows, depth, itemsize)
        data = tile(type_, seed, scale)
        done = min(len(data), made.nbytes)
        ctypes.memmove(self.pinned, data, done)
        self.calls("cuMemcpyHtoDAsync", made.address, self.pinned, done, self.stream)
        while done < made.nbytes:
            part = min(done, made.nbytes - done)
            self.calls("cuMemcpyDtoDAsync", made.address + done, made.address, part, self.stream)
            done += part
        self.wait()
        return made

    def multiply(self, type_: str, left: Matrix, right: Matrix) -> Matrix:
        """Return the product. cuBLAS counts by columns: it computes the transposed result, right times left."""
        operand, result, compute, _, itemsize = TYPES[type_]
        number: Any = ctypes.c_int32 if result == R_32I else ctypes.c_float
        made = Matrix(self._result(left, left.rows * right.rows * itemsize), left.rows, right.rows, itemsize)
        self._ask(
            "cublasGemmEx",
            *(self.handle, TRANSPOSED, AS_IT_IS, right.rows, left.rows, left.columns, ctypes.byref(number(1))),
            *(right.address, operand, right.columns, left.address, operand, left.columns),
            *(ctypes.byref(number(0)), made.address, result, made.columns, compute, DEFAULT_ALGORITHM),
        )
        return made

    def _result(self, left: Matrix, size: int) -> int:
        """Return a buffer for a result: another one than that of the left matrix, the result before."""
        made = self._results.setdefault(size, [])
        if not any(address != left.address for address in made):
            made.append(self._allocate(size))
        return next(address for address in made if address != left.address)

    def shrink(self, type_: str, product: Matrix) -> Matrix:
        """Return the product as it is. Of int8, whose result is int32, it is the first bytes, as int8."""
        return product._replace(itemsize=TYPES[type_][3])

    def memory(self, way: str, size: int) -> Callable[[], object]:
        here = self._allocate(size)
        write = ("cuMemsetD32Async", here, ONE, size // 4, self.stream)
        self.calls(*write)
        moves = write if way == "write" else ("cuMemcpyDtoDAsync", self._allocate(size), here, size, self.stream)
        return lambda: self.calls(*moves)

    def digest(self, result: Matrix) -> int:
        """Copy the result to the host. CRC-32 differs for any change within 32 bits, so for each changed value."""
        self.calls("cuMemcpyDtoHAsync", self.pinned, result.address, result.nbytes, self.stream)
        self.wait()
        return zlib.crc32((ctypes.c_char * result.nbytes).from_address(self.pinned))
