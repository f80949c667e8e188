"""Limits, environment and libraries of the host."""

import re

from gpucheck.simulator.faults import check_choice, fault
from gpucheck.simulator.machine import Machine

EVERY = (50, 60, 70, 75, 80, 86, 90, 100, 120)
# Library -> soname, and an old version of it
LIBRARIES = {
    "nccl": ("libnccl.so.2", "2.18.3"),
    "cudnn": ("libcudnn.so.8", "8.9.7"),
    "cudart": ("libcudart.so.11.0", "11.8.89"),
}
NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
MIB = 1 << 20
SONAMES = {"cudart": "libcudart.so.12", "cublas": "libcublas.so.12", "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2"}


def _wheels(torch: str) -> dict[str, str]:
    """torch and the library wheels that it is built with, so that nothing but the code is missing."""
    from gpucheck.knowledge import tables

    release = next((one for one in tables.torch().releases if one.version == torch), None)
    build = next((one for one in release.builds if one.origin == "pypi"), None) if release else None
    if build is None:
        known = ", ".join(one.version for one in tables.torch().releases)
        raise ValueError(f"torch={torch}: no release whose builds are known; there are {known}")
    family = f"cu{build.cuda.partition('.')[0]}"
    libraries = {"cudnn": build.cudnn, "nccl": build.nccl}
    wheels = {f"nvidia-{name}-{family}": version for name, version in libraries.items() if version is not None}
    return {"torch": f"{torch}+{build.build}", **wheels}


@fault("the installed torch build has no code for a GPU")
def arch_missing(machine: Machine, gpu: int = 0, torch: str = "2.7.1") -> None:
    """The torch build has no code for the GPU: it imports, sees the GPU, and fails at the first kernel.

    Binary code runs on a GPU of the same major capability, so all of those are left out.
    """
    major = int(machine.gpu(gpu).model.compute_capability.partition(".")[0])
    machine.surroundings["code_runs"] = [f"sm_{arch}" for arch in EVERY if arch // 10 != major]
    machine.surroundings["python"] = _wheels(torch)


@fault("the loader finds an older NCCL, cuDNN or CUDA before the one that torch was built for")
def library_mismatch(machine: Machine, library: str = "nccl", version: str = "") -> None:
    check_choice("library", library, LIBRARIES)
    soname, old = LIBRARIES[library]
    path = f"/usr/local/lib/{soname.partition('.so')[0]}.so.{version or old}"
    machine.surround("libraries", soname=soname, path=path, source="LD_LIBRARY_PATH")


@fault("RLIMIT_MEMLOCK is small")
def memlock_small(machine: Machine, kib: int = 64) -> None:
    machine.surroundings["memlock_bytes"] = kib * 1024


@fault("a variable that steers NCCL, CUDA or the loader was left in the environment")
def nccl_env(machine: Machine, name: str = "NCCL_P2P_DISABLE", value: str = "1") -> None:
    """A variable left in the environment changes what NCCL does. This process's own environment stays as it is."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name={name}: a variable's name is of capitals, digits and _")
    environment = machine.surroundings.get("environment", {})
    assert isinstance(environment, dict)  # noqa: S101 - only this fault writes it
    machine.surroundings["environment"] = environment | {name: value}


@fault("shared memory (/dev/shm) is small")
def shm_small(machine: Machine, mib: int = 64) -> None:
    machine.surroundings |= {"shm_bytes": mib * MIB, "shm_free_bytes": mib * MIB}


@fault("two copies of a CUDA library are on the loader's path")
def two_libraries(machine: Machine, library: str = "cudart") -> None:
    check_choice("library", library, SONAMES)
    soname = SONAMES[library]
    machine.surround("libraries", soname=soname, path=f"/opt/cuda/lib64/{soname}", source="LD_LIBRARY_PATH")
    machine.surround("libraries", soname=soname, path=f"/usr/local/cuda-12.8/lib64/{soname}", source="ld.so.cache")
