"""Two copies of a CUDA library on the loader's path: which one a program gets depends on who asks first."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

SONAMES = {"cudart": "libcudart.so.12", "cublas": "libcublas.so.12", "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2"}


def _apply(machine: Machine, library: str) -> None:
    if library not in SONAMES:
        raise ValueError(f"library={library}: one of {', '.join(SONAMES)}")
    soname = SONAMES[library]
    machine.find_library(soname, f"/opt/cuda/lib64/{soname}", "LD_LIBRARY_PATH")
    machine.find_library(soname, f"/usr/local/cuda-12.8/lib64/{soname}", "ld.so.cache")


FAULT = Fault(
    name="two-libraries",
    summary="two copies of a CUDA library are on the loader's path",
    apply=_apply,
    parameters={"library": "cudart"},
)
