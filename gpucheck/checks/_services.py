"""What systemd reports about a unit, for the checks of services."""

from gpucheck.model import Host

NOT_FOUND = "not-found"
NOT_QUERIED = "systemd cannot be queried from here"


def unit_state(host: Host, unit: str) -> tuple[str | None, bool]:
    """Return ActiveState of a unit, None if systemd has no such unit, and whether systemd could be queried."""
    state = host.services([unit])[unit]
    return (None if state == NOT_FOUND else state), state is not None
