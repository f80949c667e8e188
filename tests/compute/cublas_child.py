"""The process that computes with cuBLAS, with smaller matrices; device 1 has a fault of stub_cublas.c or the driver.

``python -m tests.compute.cublas_child "NAME=VALUE" FD``; without ``=`` there is no fault.
"""

import os
import sys

from gpucheck.compute.engines import engine
from gpucheck.compute.engines.cublas import CublasEngine
from gpucheck.compute.running.child import main
from gpucheck.compute.values import Setup

engine.SMALL_SIDE, engine.SMALL_ROWS, engine.SMALL_DEPTH = 32, 32, 16
begin = CublasEngine.begin


def with_fault(self: CublasEngine, setup: Setup) -> None:
    name, given, value = sys.argv[1].partition("=")
    if given and setup.device.index == 1:
        os.environ[name] = value
    begin(self, setup)


if __name__ == "__main__":
    CublasEngine.begin = with_fault  # type: ignore[method-assign,assignment]
    main(int(sys.argv[2]), sys.stdin.buffer)
