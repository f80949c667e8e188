"""The state of a systemd unit, and whether systemd could be queried at all."""

from gpucheck.model import Host

# Runs on every host that systemd runs: if it is not known, then systemd did not respond (a container without it).
ALWAYS = "systemd-journald"
NOT_QUERIED = "systemd cannot be queried from here"


def unit_state(host: Host, unit: str) -> tuple[str | None, bool]:
    """Return ActiveState of a unit, None where there is none, and whether systemd responded."""
    states = host.services([unit, ALWAYS])
    simulated = host.simulation() is not None  # such a host responds for its GPUs' units only
    return states[unit], states[unit] is not None or states[ALWAYS] is not None or simulated
