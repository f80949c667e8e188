"""The loader finds another NCCL, cuDNN or CUDA than the one that torch was built for."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

# Library -> soname, and an old version of it
LIBRARIES = {
    "nccl": ("libnccl.so.2", "2.18.3"),
    "cudnn": ("libcudnn.so.8", "8.9.7"),
    "cudart": ("libcudart.so.11.0", "11.8.89"),
}


def _apply(machine: Machine, library: str, version: str) -> None:
    if library not in LIBRARIES:
        raise ValueError(f"library={library}: one of {', '.join(LIBRARIES)}")
    soname, old = LIBRARIES[library]
    path = f"/usr/local/lib/{soname.partition('.so')[0]}.so.{version or old}"
    machine.find_library(soname, path, "LD_LIBRARY_PATH")


FAULT = Fault(
    name="library-mismatch",
    summary="the loader finds an older NCCL, cuDNN or CUDA before the one that torch was built for",
    apply=_apply,
    parameters={"library": "nccl", "version": ""},
)
