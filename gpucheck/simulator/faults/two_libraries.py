"""Two copies of a CUDA library on the loader's path: which one a program gets depends on who asks first."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

SONAMES = {"cudart": "libcudart.so.12", "cublas": "libcublas.so.12", "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2"}


def _apply(machine: Machine, library: str = "cudart") -> None:
    check_choice("library", library, SONAMES)
    soname = SONAMES[library]
    machine.surround("libraries", soname=soname, path=f"/opt/cuda/lib64/{soname}", source="LD_LIBRARY_PATH")
    machine.surround("libraries", soname=soname, path=f"/usr/local/cuda-12.8/lib64/{soname}", source="ld.so.cache")


FAULT = Fault("two-libraries", "two copies of a CUDA library are on the loader's path", _apply)
