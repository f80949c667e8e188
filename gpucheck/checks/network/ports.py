"""Network ports: is each port that carries traffic of GPUs active, at the rate of its equals?

Source: state, phys_state and rate of /sys/class/infiniband/<device>/ports/<number>. How many ports a host uses, and at
which rate, differs from site to site: a port is compared with the same port of equal cards of this host.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpucheck.checks.network._cards import NEEDS, about, cards, lines, words
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.topology.nics import Card, groups_of

NAME = "nic-ports"
# So many equal cards of one state show what is usual on this host; one may itself be the odd one.
ENOUGH = 2
# The driver of EFA reports every port as active at 100 Gb/s (drivers/infiniband/hw/efa/efa_verbs.c of Linux).
AMAZON = "1d0f"
TRAINED = ("init", "initializing", "armed")
# The same where only the output of a tool is known, and with it not the use of a port.
PRINTED = 3


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each port that differs from its equals, or one for the host."""
    found, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    if all(card.pci.vendor_id == AMAZON for card in found):
        yield Subject(check=NAME).skips("network.port-state-fixed", len(found))
        return
    own = [finding for same in groups_of(found) for finding in _of_equals(same, found)]
    yield from own
    if not own:
        every = [port for card in found for port in card.device.ports]
        active = [port for port in every if port.is_active]
        rates = sorted({f"{port.rate_gbit_s:g}" for port in active if port.rate_gbit_s is not None})
        host = Subject(check=NAME, evidence=tuple(line for card in found for line in lines(card.device)))
        if active:
            yield host.passes(f"{len(active)} of {len(every)} active, {' and '.join(rates) or 'unknown'} Gb/s")
        else:
            yield host.skips("network.no-port-in-use", f"0 of {len(found)} active")


def of_printed(devices: Sequence[RdmaDevice]) -> Iterator[Finding]:
    """The same for devices that a tool printed, of which no place shows the use: a spare port looks like a fault."""
    every = {(device.name, port.number): (device, port) for device in devices for port in device.ports}
    if every and all(map(_shows_link, (port for _, port in every.values()))) and len(_rates(every.values())) < 2:
        evidence = tuple(_text(device, port) for device, port in every.values())
        yield Subject(check=NAME, evidence=evidence).passes(f"{len(every)} of {len(every)} active")
    for device, port in every.values():
        equals = [
            other
            for one, other in every.values()
            if (one.name, other.number) != (device.name, port.number)
            and device.model is not None
            and (one.model, other.link_layer) == (device.model, port.link_layer)
        ]
        up = [other for other in equals if other.is_active]
        subject = Subject(check=NAME, name=f"nic:{device.name}", evidence=(_text(device, port),))
        if _is_linked(port) and not port.is_active:
            yield subject.warns(
                "network.port-without-manager", port.state, "active", device=device.name, port=port.number
            )
        elif port.state is not None and not port.is_active:
            spare = device.card and any(p.is_active for one, p in every.values() if one.card == device.card)
            odd = len(up) >= PRINTED and len(up) == len(equals) and not spare
            code = "network.port-odd" if odd else "network.port-unused"
            yield subject.finding(
                Verdict.WARN if odd else Verdict.UNKNOWN, code, port.state, device=device.name, port=port.number
            )
        elif port.rate_gbit_s is not None and len(up) >= PRINTED and len({other.rate_gbit_s for other in up}) == 1:
            best = up[0].rate_gbit_s
            if best is not None and port.rate_gbit_s < best:
                seen, wanted = f"{port.rate_gbit_s:g} Gb/s", f"{best:g} Gb/s"
                yield subject.warns("network.port-slower", seen, wanted, device=device.name, port=port.number)


def _shows_link(port: RdmaPort) -> bool:
    """The port is active, and not of a driver that has one answer for every port, as that of EFA."""
    return port.is_active and port.link_layer not in ("unknown", "unspecified")


def _rates(every: Iterable[tuple[RdmaDevice, RdmaPort]]) -> set[float | None]:
    return {port.rate_gbit_s for _, port in every}


def _is_linked(port: RdmaPort) -> bool:
    """The port has a link, and no subnet manager or administrator has made it active."""
    linked = (port.physical or "").replace("_", "").replace(" ", "") == "linkup"
    return port.state in TRAINED or (linked and port.link_layer == "infiniband" and port.state is not None)


def _text(device: RdmaDevice, port: RdmaPort) -> str:
    return f"{device.name} port {port.number}{f' ({device.model})' if device.model else ''}: {words(port)}"


def _of_equals(same: list[Card], every: tuple[Card, ...]) -> Iterator[Finding]:
    for card in same:
        if card.device.unread is not None:
            yield about(NAME, card).unknown(
                "network.device-unreadable", device=card.device.name, reason=card.device.unread
            )
    for number in sorted({port.number for card in same for port in card.device.ports}):
        ports = {card: port for card in same for port in card.device.ports if port.number == number}
        used = any(port.is_active for port in ports.values())
        unused = [card for card, port in ports.items() if not port.is_active]
        if used:
            yield from (finding for card in ports if (finding := _port(card, ports)) is not None)
        elif len(unused) >= ENOUGH and not all(_is_spare(card, every) for card in unused):
            names = ", ".join(card.device.name for card in unused)
            evidence = tuple(f"{card.device.name} port {number}: {words(ports[card])}" for card in unused)
            yield Subject(check=NAME, evidence=evidence).unknown(
                "network.no-port-active", f"0 of {len(unused)} active", devices=names
            )


def _is_spare(card: Card, every: tuple[Card, ...]) -> bool:
    """Another port of the same card is in use: second ports are often without a cable."""
    return any(port.is_active for other in every if other.slot == card.slot for port in other.device.ports)


def _port(card: Card, ports: dict[Card, RdmaPort]) -> Finding | None:
    port, device = ports[card], card.device.name
    up = [other for one, other in ports.items() if one is not card and other.is_active]
    subject = about(NAME, card, f"{device} port {port.number}: {words(port)}")
    if port.state is None:
        return subject.unknown("network.port-state-unknown", device=device, port=port.number)
    if not port.is_active:
        code = "network.port-not-configured" if port.state in TRAINED else "network.port-down"
        return subject.finding(_sure(len(up)), code, port.state, "active", device=device, port=port.number)
    rates = Counter(other.rate_gbit_s for other in up if other.rate_gbit_s is not None)
    if port.rate_gbit_s is None:
        unknown = subject.unknown("network.port-rate-unknown", device=device, port=port.number)
        return unknown if rates else None
    faster = {rate: count for rate, count in rates.items() if rate > port.rate_gbit_s}
    if not faster:
        return None
    best, count = max(faster.items(), key=lambda item: (item[1] >= ENOUGH, item[0]))
    rate, wanted = f"{port.rate_gbit_s:g} Gb/s", f"{best:g} Gb/s"
    return subject.finding(_sure(count), "network.port-slow", rate, wanted, device=device, port=port.number)


def _sure(equals: int) -> Verdict:
    """FAIL where enough equal cards show what is usual; of two that differ either may be the odd one."""
    return Verdict.FAIL if equals >= ENOUGH else Verdict.WARN


CHECK = Check(
    NAME,
    frozenset({"hardware", "network", "quick"}),
    evaluate=evaluate,
    needs=NEEDS,
    thresholds=(f"FAIL where {ENOUGH} or more equal cards of the host are active, or faster; WARN where one is",),
)
