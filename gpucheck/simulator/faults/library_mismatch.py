"""The loader finds another NCCL, cuDNN or CUDA than the one that torch was built for."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# Library -> soname, and an old version of it
LIBRARIES = {
    "nccl": ("libnccl.so.2", "2.18.3"),
    "cudnn": ("libcudnn.so.8", "8.9.7"),
    "cudart": ("libcudart.so.11.0", "11.8.89"),
}


def _apply(machine: Machine, library: str = "nccl", version: str = "") -> None:
    check_choice("library", library, LIBRARIES)
    soname, old = LIBRARIES[library]
    path = f"/usr/local/lib/{soname.partition('.so')[0]}.so.{version or old}"
    machine.surround("libraries", soname=soname, path=path, source="LD_LIBRARY_PATH")


FAULT = Fault(
    "library-mismatch", "the loader finds an older NCCL, cuDNN or CUDA before the one that torch was built for", _apply
)
