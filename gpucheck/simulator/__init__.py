"""Simulated GPU machines: a simulated NVML library and sysfs tree for real NVML clients.

A simulated machine is a directory D (see ``writer`` for every file in it)::

    D/machine.txt       what the NVML library answers
    D/root/             what /sys, /proc and /lib/modules would hold
    D/recipe.json       what the machine was made from, so that ``switch`` can give it other faults
    D/simulation.json   profile, faults and stand-ins (gpucheck.model.Simulation)
    D/surroundings.json shared memory, limits, environment and libraries where they differ from a healthy host's
    D/software.json     services and packages that go with the GPUs, only where this process made D for itself
    D/lib/              libnvidia-ml.so.1, only where this process made D for itself

D is $GPUCHECK_SIMULATOR, else /run/gpucheck-simulator if that holds a simulation.json. Nothing else decides it.
Everything but ``activate`` is loaded on first use: a machine that is in the cache needs no YAML and no compiler.
"""

from typing import TYPE_CHECKING, Any

from gpucheck.simulator.activation import activate

if TYPE_CHECKING:
    from gpucheck.simulator.faults import Fault, all_faults
    from gpucheck.simulator.live import make, switch
    from gpucheck.simulator.machine.loading import load, profile_names
    from gpucheck.simulator.machine.profile import Profile
    from gpucheck.simulator.nvml.library import build_library
    from gpucheck.simulator.recorded import from_recording, to_yaml
    from gpucheck.simulator.writer import write_machine

__all__ = [
    "Fault",
    "Profile",
    "activate",
    "all_faults",
    "build_library",
    "from_recording",
    "load",
    "make",
    "profile_names",
    "switch",
    "to_yaml",
    "write_machine",
]

_HOME = {
    "Fault": "faults",
    "Profile": "machine.profile",
    "all_faults": "faults",
    "build_library": "nvml.library",
    "from_recording": "recorded",
    "load": "machine.loading",
    "make": "live",
    "profile_names": "machine.loading",
    "switch": "live",
    "to_yaml": "recorded",
    "write_machine": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
