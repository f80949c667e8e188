"""Read-only access to the host: NVML, sysfs, procfs, packages, services.

The child process that queries NVML starts here too, and importing what only its parent needs would take a third of its
time: the live source is imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpucheck.host.live import LiveSource, Place, live_source

__all__ = ["LiveSource", "Place", "live_source"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpucheck.host import live

    return getattr(live, name)
