"""The torch build has no code for the GPU: it imports, sees the GPU, and fails at the first kernel."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

EVERY = (50, 60, 70, 75, 80, 86, 90, 100, 120)


def _apply(machine: Machine, gpu: int = 0, torch: str = "2.7.1") -> None:
    """Binary code runs on a GPU of the same major capability, so all of those are left out."""
    major = int(machine.gpu(gpu).model.compute_capability.partition(".")[0])
    machine.surroundings["code_runs"] = [f"sm_{arch}" for arch in EVERY if arch // 10 != major]
    machine.surroundings["python"] = _wheels(torch)


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


FAULT = Fault("arch-missing", "the installed torch build has no code for a GPU", _apply)
