"""How long the machine is up: what a count since boot must be divided by."""

UPTIME = "/proc/uptime"


def up_hours(text: str | None) -> float | None:
    """Return hours since boot, None if unknown. text: of /proc/uptime."""
    words = (text or "").split()
    try:
        return float(words[0]) / 3600 if words else None
    except ValueError:
        return None
