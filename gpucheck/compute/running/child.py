"""The process that computes on one device: ``python -m gpucheck.compute.running.child FD``.

It reads JSON lines on stdin (Setup, then Steps) and writes a JSON line for each to the descriptor (Opened, Answer or
Failure).
"""

import sys
from functools import partial
from typing import BinaryIO

from gpucheck.compute.engines.cublas import CublasEngine
from gpucheck.compute.engines.engine import Engine, NoType
from gpucheck.compute.engines.torch import TorchEngine
from gpucheck.compute.values import Answer, ComputeStep, Failure, Opened, Setup
from gpucheck.measure.engines.driver.calls import CudaError, MissingCall
from gpucheck.measure.values import OUT_OF_MEMORY
from gpucheck.model.compute import CUBLAS, FailureKind
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.lifeline import first_line, located, reply, serve, setup_of

# CUDA error 209 (cudaErrorNoKernelImageForDevice).
NO_CODE = "no kernel image is available"
MEMORY, CUDA = "out of memory", ("CUDA error", "CUBLAS_STATUS", "cuBLAS", "CUDA_ERROR")


def failure_of(error: Exception, step: str = "") -> Failure:
    """Return the failure that an exception of the framework stands for, with its first line and its place."""
    if isinstance(error, ModuleNotFoundError):
        return Failure(kind="missing-package", detail=str(error.name), step=step)
    first = first_line(error)
    kind: FailureKind = "defect"
    if MEMORY in first or (isinstance(error, CudaError) and error.code == OUT_OF_MEMORY):  # of the GPU
        kind = "no-memory"
    elif exhausted(error):
        kind = "no-resources"
    elif isinstance(error, CudaError) or (
        any(words in first for words in CUDA) and not isinstance(error, NotImplementedError)
    ):
        kind = "cuda-error" if step else "not-started"
    elif isinstance(error, LookupError | OSError | RuntimeError | MissingCall) and not step:
        kind = "not-started"
    if kind == "not-started" and NO_CODE in first:
        kind = "no-code"
    capability = error.capability if isinstance(error, NoType) else None
    return Failure(kind=kind, detail=located(error) if kind == "defect" else first, step=step, capability=capability)


def opened(engine: Engine, setup: Setup) -> Opened | Failure:
    try:
        return engine.open(setup)
    except Exception as error:
        return failure_of(error)


def answer(engine: Engine, step: ComputeStep) -> Answer | Failure:
    try:
        return engine.run(step)
    except Exception as error:
        return failure_of(error, step.label)


def main(descriptor: int, requests: BinaryIO) -> None:
    """Run requests until stdin closes."""
    setup = setup_of(requests, Setup)
    engine = CublasEngine() if setup.engine == CUBLAS else TorchEngine()
    first = opened(engine, setup)
    reply(descriptor, first)
    if isinstance(first, Opened):
        serve(descriptor, requests, ComputeStep, partial(answer, engine))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer)
