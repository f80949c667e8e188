"""The only door to the machine: NVML, sysfs and procfs, packages, services. It reads and never judges.

The child that asks NVML starts here too, and a third of its time would go into what only its parent needs: the door
itself is imported when somebody takes it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpucheck.host.live import LiveHost, live_host

__all__ = ["LiveHost", "live_host"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpucheck.host import live

    return getattr(live, name)
