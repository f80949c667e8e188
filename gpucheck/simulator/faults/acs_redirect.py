"""Access Control Services send peer traffic up to the root complex instead of straight through the switch."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Function, Machine

# Source validation, request and completion redirect, upstream forwarding: what Linux turns on for an IOMMU
CONTROL = 0x01 | 0x04 | 0x08 | 0x10


def _apply(machine: Machine, bus_id: str = "all") -> None:
    for port in _ports(machine, bus_id):
        port.acs_control = CONTROL & (port.acs_capability or 0)


def _ports(machine: Machine, bus_id: str) -> list[Function]:
    """Every port that can isolate, or those of one switch by its upstream port, or one port."""
    ports = machine.ports()
    if not ports:
        raise ValueError(f"profile {machine.profile.name} shows no port with ACS")
    if bus_id == "all":
        return ports
    chosen = [port for port in ports if bus_id in (port.bus_id, port.parent)]
    if not chosen:
        raise ValueError(f"bus_id={bus_id}: no switch or port with ACS; there are {', '.join(p.bus_id for p in ports)}")
    return chosen


FAULT = Fault(
    "acs-redirect", "ACS sends peer-to-peer traffic up to the CPU, at every port or at those of one switch", _apply
)
