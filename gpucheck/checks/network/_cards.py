"""Which network cards are evaluated, and how the findings name them."""

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.topology.nics import Card, cards_of_gpus


def cards(check: str, facts: Facts) -> tuple[tuple[Card, ...], Finding | None]:
    """Return the cards that carry traffic of GPUs, or a SKIP of the check that states why there are none."""
    found = cards_of_gpus(facts)
    if found:
        return found, None
    subject = Subject(check=check, evidence=tuple(line for device in facts.rdma for line in lines(device)))
    return (), subject.skips("network.no-card-of-gpus" if facts.rdma else "network.no-rdma-device", len(facts.rdma))


def about(check: str, card: Card, *evidence: str, unit: str | None = None) -> Subject:
    return Subject(check=check, name=f"nic:{card.pci.bus_id}", unit=unit, evidence=evidence)


def lines(device: RdmaDevice) -> tuple[str, ...]:
    """Return what was read, a line for each port."""
    if device.unread is not None:
        return (f"{device.name}: {device.unread}",)
    return tuple(f"{device.name} port {port.number}: {words(port)}" for port in device.ports)


def words(port: RdmaPort) -> str:
    """Return ``active, linkup, 400 Gb/s, infiniband``; the rate of a port that is not active means nothing."""
    rate = f"{port.rate_gbit_s:g} Gb/s" if port.rate_gbit_s is not None and port.is_active else None
    parts = (port.state or "state not reported", port.physical, rate, port.link_layer)
    return ", ".join(part for part in parts if part)
