"""How long the machine is up: what a count since boot must be divided by."""

from gpucheck.model import Host


def up_hours(host: Host) -> float | None:
    """Return hours since boot, None if unknown."""
    words = (host.read_text("/proc/uptime") or "").split()
    try:
        return float(words[0]) / 3600 if words else None
    except ValueError:
        return None
