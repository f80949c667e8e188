"""Read-only access to the host: NVML, sysfs, procfs, packages, services.

The child process that queries NVML starts here too, and importing what only its parent needs would take a third of its
time: the live source is imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpucheck.host.live import LiveSource, Place

__all__ = ["LiveSource", "Place", "live_source"]


def __getattr__(name: str) -> Any:
    if name not in ("LiveSource", "Place"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpucheck.host import live

    return getattr(live, name)


def live_source(*, isolated: bool, deadline_s: float, health: bool = True, begin: bool = False) -> "LiveSource":
    """This machine, or the simulated one that the environment names; arguments as in Place.

    begin: ask NVML at once, while the caller does other things.
    """
    from gpucheck.host import simulated
    from gpucheck.host.nvml.supervisor import NvmlChild

    child = NvmlChild(deadline_s, health=health) if begin and isolated else None
    # Imported while the child starts.
    from gpucheck.host.live import LiveSource, Place

    machine = simulated.machine_directory()
    return LiveSource(Place(isolated=isolated, deadline_s=deadline_s, machine=machine, health=health, begun=child))
