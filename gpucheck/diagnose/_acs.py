"""Bridges that redirect peer traffic to the root complex, by their Access Control Services registers."""

from gpucheck.model.diagnosis.observations import Observations

# Bits of the ACS control register that send peer traffic to the root complex: request and completion redirect, egress
# control. Source validation (0x01) alone redirects nothing. Source: Linux drivers/pci/p2pdma.c.
REDIRECTING = 0x04 | 0x08 | 0x20


def redirects(seen: Observations, paths: set[str]) -> bool | None:
    """Whether a bridge redirects. The registers are the truth where they were read.

    paths: bridges between GPUs; others do not count, where these are known.
    """
    if seen.host.acs:
        redirecting = {row.bus_id for row in seen.host.acs if row.control & REDIRECTING}
        if not paths:
            return bool(redirecting)
        return bool(paths & redirecting) if paths & {row.bus_id for row in seen.host.acs} else None
    said = seen.host.acs_redirect
    if isinstance(said, tuple):
        return bool(paths & set(said)) if paths else bool(said)
    return said


def redirecting_bridges(seen: Observations) -> tuple[str, ...]:
    """The bridges that redirect, where they are named."""
    said = seen.host.acs_redirect
    named = said if isinstance(said, tuple) else ()
    return tuple(row.bus_id for row in seen.host.acs if row.control & REDIRECTING) or named
