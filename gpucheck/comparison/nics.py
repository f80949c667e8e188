"""Network cards of two reports of one host: each is compared with the same card, and what became worse is named."""

from collections.abc import Iterator

from gpucheck.checks.network.counters import Place, of_dated
from gpucheck.comparison.rates import NAME
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, PciDevice, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters, RdmaDevice


def compare(before: Facts, now: Facts, started: str, hours: float, uptime: float | None) -> Iterator[Finding]:
    """A card is the same at its PCI address, else by board and GUID. hours: between the reports; uptime: since boot."""
    left = {pci.bus_id: (pci, device) for pci, device in _cards(before)}
    moved = {_identity(pci, device): bus_id for bus_id, (pci, device) in left.items() if device.card}
    for pci, device in _cards(now):
        place = pci.bus_id if pci.bus_id in left else moved.get(_identity(pci, device), "")
        was = left.pop(place, None)
        if was is not None:
            subject = Subject(check=NAME, name=f"nic:{pci.bus_id}")
            yield from _ports(subject, was[1], device, started)
            yield from _counted(subject, (before, was[1]), (now, device), hours, uptime)
    for bus_id, (_, device) in left.items():
        if any(port.is_active for port in device.ports):
            subject = Subject(check=NAME, name=f"nic:{bus_id}")
            yield subject.fails("comparison.nic-gone", "gone", f"{device.name}, as on {started}", device=device.name)


def _cards(facts: Facts) -> Iterator[tuple[PciDevice, RdmaDevice]]:
    named = {device.name: device for device in facts.rdma or () if not device.is_virtual}
    return ((pci, named[name]) for pci in facts.pci for name in pci.infiniband_names if name in named)


def _identity(pci: PciDevice, device: RdmaDevice) -> tuple[str | None, ...]:
    return device.board, device.card, pci.bus_id.rpartition(".")[2]


def _ports(subject: Subject, before: RdmaDevice, now: RdmaDevice, started: str) -> Iterator[Finding]:
    then = {port.number: port for port in before.ports if port.is_active}
    for port in now.ports:
        old = then.get(port.number)
        if old is None or port.state is None:
            continue
        if not port.is_active:
            yield subject.fails("comparison.nic-port-lost", port.state, "active", device=now.name, port=port.number)
        elif old.rate_gbit_s and port.rate_gbit_s and port.rate_gbit_s < old.rate_gbit_s:
            seen, wanted = f"{port.rate_gbit_s:g} Gb/s", f"{old.rate_gbit_s:g} Gb/s, as on {started}"
            yield subject.fails("comparison.nic-slower", seen, wanted, device=now.name, port=port.number)


def _counted(
    subject: Subject,
    before: tuple[Facts, RdmaDevice],
    now: tuple[Facts, RdmaDevice],
    hours: float,
    uptime: float | None,
) -> Iterator[Finding]:
    """What rose by more than a healthy link has. After a reboot or a reload of the driver counters begin at zero."""
    (old, was), (new, device) = before, now
    if was.card != device.card:
        return  # the board was replaced
    then = {one.port.rpartition("/")[2]: one for one in old.counters_at_start or () if one.port == _key(was, one)}
    for one in new.counters_at_start or ():
        first = then.get(one.port.rpartition("/")[2]) if one.port == _key(device, one) else None
        if first is None:
            continue
        started_again = any(value < first.values.get(name, 0) for name, value in one.values.items())
        over = min(hours, uptime) if started_again and uptime is not None else hours
        base = dict.fromkeys(one.values, 0) if started_again else first.values
        pair = (
            PortCounters(port=one.port, values=base, seconds=0.0),
            PortCounters(port=one.port, values=one.values, seconds=3600 * over),
        )
        rates = [port.rate_gbit_s for port in device.ports if f"{device.name}/{port.number}" == one.port]
        found = of_dated(pair, {one.port: Place(subject, rates[0] if rates else None)})
        yield from (finding for finding in found if finding.verdict is Verdict.WARN)


def _key(device: RdmaDevice, one: PortCounters) -> str:
    return f"{device.name}/{one.port.rpartition('/')[2]}"
