"""What systemd says of a unit, and whether it could be asked at all."""

from gpucheck.model import Host

# Runs on every host that systemd runs: if it is not known, then systemd did not answer (a container without it).
ALWAYS = "systemd-journald"
NOT_ASKED = "systemd cannot be queried from here"


def unit_state(host: Host, unit: str) -> tuple[str | None, bool]:
    """Return ActiveState of a unit, None where there is none, and whether systemd answered."""
    states = host.services([unit, ALWAYS])
    simulated = host.simulation() is not None  # such a host answers for its GPUs' units only
    return states[unit], states[unit] is not None or states[ALWAYS] is not None or simulated
