"""Simulate GPU machines: NVML and CUDA driver libraries and a sysfs tree for unmodified clients.

A simulated machine is a directory D (see ``writer`` for every file in it)::

    D/machine.txt       the values that the NVML library returns
    D/cuda.txt          rates and faults of copies, for the CUDA driver library
    D/compute.json      ceilings, heat and faults of GPUs that compute, for gpucheck.compute.engines.simulated
    D/root/             simulated /sys, /proc and /lib/modules
    D/simulation.json   profile, faults and simulated components (gpucheck.model.Simulation)
    D/surroundings.json shared memory, limits, environment and libraries that differ from a healthy host's
    D/software.json     GPU services and packages, only if this process created D for itself
    D/lib/              libnvidia-ml.so.1 and libcuda.so.1, only if this process created D for itself

D is $GPUCHECK_SIMULATOR, else /run/gpucheck-simulator if that holds a simulation.json.
All but ``activate`` is imported on first use: a cached machine needs no YAML parser and no compiler.
"""

from typing import TYPE_CHECKING, Any

from gpucheck.simulator.activation import activate

if TYPE_CHECKING:
    from gpucheck.simulator.compiler import build_cuda_library, build_library
    from gpucheck.simulator.faults import all_faults
    from gpucheck.simulator.machine.loading import load, profile_names
    from gpucheck.simulator.writer import Recipe, make, write_machine


_HOME = {
    "Recipe": "writer",
    "all_faults": "faults",
    "build_cuda_library": "compiler",
    "build_library": "compiler",
    "load": "machine.loading",
    "make": "writer",
    "profile_names": "machine.loading",
    "write_machine": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
