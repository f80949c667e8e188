"""The only door to the machine: NVML, sysfs and procfs, packages, services. It reads and never judges."""

from gpucheck.host.live import LiveHost, live_host

__all__ = ["LiveHost", "live_host"]
