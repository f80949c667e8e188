"""Network ports: is each port that carries traffic of GPUs active, at the rate of its equals?

Source: state, phys_state and rate of /sys/class/infiniband/<device>/ports/<number>. How many ports a host uses, and at
which rate, differs from site to site: a port is compared with the same port of equal cards of this host.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import about, cards, lines, words
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.topology.nics import AMAZON, NEEDS, Card

NAME = "nic-ports"
# So many equal cards of one state show what is usual on this host; one may itself be the odd one.
ENOUGH = 2
TRAINED = ("init", "initializing", "armed")
# It was active, and its link has failed since.
LOST = "active_defer"
# InfiniBand of two or four lanes has this rate at least (QDR; cards from Connect-IB on are faster). Less is one lane,
# or a generation that the card gave up long ago.
QDR_GBIT_S, FROM_CONNECT_IB = 40.0, range(4113, 5000)  # MT4113; older ones have numbers from 25000 on
# The same where only the output of a tool is known, and with it not the use of a port.
PRINTED = 3


class Seen(NamedTuple):
    """One port, as a host or a tool shows it. kind: what ports that can be compared have in common; None: none can.

    card: equal for the ports of one card. used: it carries traffic of GPUs; what a tool printed may be a spare port.
    gpus: of those, the ones below its switch. place: what it has in common with ports of other boards of its product.
    """

    device: str
    port: RdmaPort
    subject: Subject
    kind: tuple[object, ...] | None
    card: str | None
    model: str | None = None
    used: bool = True
    gpus: tuple[str, ...] = ()
    place: tuple[object, ...] = ()

    def judged(self, verdict: Verdict, code: str, seen: str | None = None, wanted: str | None = None) -> Finding:
        return self.subject.finding(verdict, code, seen, wanted, device=self.device, port=self.port.number)


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each port that differs from its equals, or one for the host."""
    found, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    every = [
        Seen(
            card.device.name,
            port,
            about(NAME, card, _text(card.device, port)),
            (card.product, port.number),
            card.slot,
            card.device.model,
            gpus=card.gpus,
            place=(card.model, card.pci.bus_id.rpartition(".")[2], port.number),
        )
        for card in found
        for port in card.device.ports
    ]
    # Without its link layer or its board a card is equal to no other, so that nothing would be compared.
    reasons = [(card, card.device.unread or _no_layer(card.device) or _no_board(card, found)) for card in found]
    unread = [
        about(NAME, card).unknown("network.device-unreadable", device=card.device.name, reason=reason)
        for card, reason in reasons
        if reason is not None
    ]
    # The driver of EFA reports every port as active at 100 Gb/s (drivers/infiniband/hw/efa/efa_verbs.c of Linux).
    if all(card.pci.vendor_id == AMAZON for card in found):
        yield from unread or (Subject(check=NAME).skips("network.port-state-fixed", len(found)),)
        return
    own = [*unread, *_not_connected(every), *_differing(every)]
    yield from own
    if not own:
        active = [one.port for one in every if one.port.is_active]
        rates = sorted({f"{port.rate_gbit_s:g}" for port in active if port.rate_gbit_s is not None})
        host = Subject(check=NAME, evidence=tuple(line for card in found for line in lines(card.device)))
        if active:
            yield host.passes(f"{len(active)} of {len(every)} active, {' and '.join(rates) or 'unknown'} Gb/s")
        else:
            yield host.skips("network.no-port-in-use", f"0 of {len(found)} active")


def _no_layer(device: RdmaDevice) -> str | None:
    ports = [str(port.number) for port in device.ports if port.link_layer is None]
    return f"no link_layer of port {', '.join(ports)}" if ports else None


def _no_board(card: Card, every: Sequence[Card]) -> str | None:
    """A driver has board_id for all cards of a product, as mlx5, or for none, as EFA."""
    models = {other.model for other in every if other.device.board is not None}
    return "no board_id" if card.device.board is None and card.model in models else None


def of_printed(devices: Sequence[RdmaDevice]) -> Iterator[Finding]:
    """The same for devices that a tool printed, of which no place shows the use: a spare port looks like a fault."""
    ports = {(device.name, port.number): (device, port) for device in devices for port in device.ports}
    every = [
        Seen(
            device.name,
            port,
            Subject(check=NAME, name=f"nic:{device.name}", evidence=(_text(device, port),)),
            (device.model, port.link_layer) if device.model else None,
            device.card,
            device.model,
            used=False,
        )
        for device, port in ports.values()
    ]
    alike = len({one.port.rate_gbit_s for one in every}) < ENOUGH and not any(map(_has_few_lanes, every))
    if every and alike and all(_shows_link(one.port) for one in every):
        evidence = tuple(line for one in every for line in one.subject.evidence)
        yield Subject(check=NAME, evidence=evidence).passes(f"{len(every)} of {len(every)} active")
    yield from _differing(every)


def _shows_link(port: RdmaPort) -> bool:
    """The port is active, and not of a driver that has one answer for every port, as that of EFA."""
    return port.is_active and port.link_layer not in ("unknown", "unspecified") and _physical(port) in ("", "linkup")


def _is_linked(port: RdmaPort) -> bool:
    """The port has a link, and no subnet manager or administrator has made it active."""
    linked = _physical(port) == "linkup" and port.state not in (None, LOST)
    return port.state in TRAINED or (linked and port.link_layer == "infiniband")


def _physical(port: RdmaPort) -> str:
    return (port.physical or "").replace("_", "").replace(" ", "")


def _text(device: RdmaDevice, port: RdmaPort) -> str:
    return f"{device.name} port {port.number}{f' ({device.model})' if device.model else ''}: {words(port)}"


def _not_connected(every: list[Seen]) -> Iterator[Finding]:
    """One finding for equal ports of which none is active; second ports of cards in use are often without a cable."""
    for kind in dict.fromkeys(one.kind for one in every):
        same = [one for one in every if one.kind == kind]
        idle = [one for one in same if not _is_linked(one.port)]
        unused = len(idle) >= ENOUGH and not any(one.port.is_active for one in same)
        if unused and not all(_is_spare(one, every) for one in idle):
            host = Subject(check=NAME, evidence=tuple(line for one in idle for line in one.subject.evidence))
            names = ", ".join(one.device for one in idle)
            yield host.unknown("network.no-port-active", f"0 of {len(idle)} active", devices=names)


def _is_spare(one: Seen, every: list[Seen]) -> bool:
    return one.card is not None and any(other.port.is_active for other in every if other.card == one.card)


def _differing(every: list[Seen]) -> Iterator[Finding]:
    for one in every:
        equals = [other for other in every if other is not one and one.kind is not None and other.kind == one.kind]
        up = [other.port for other in equals if other.port.is_active]
        if one.port.is_active:
            if _physical(one.port) == "linkerrorrecovery":
                yield one.judged(Verdict.WARN, "network.port-recovering", one.port.physical, "linkup")
            slower = list(_slower(one, up))
            yield from slower
            if not slower and _has_few_lanes(one):
                rate = f"{one.port.rate_gbit_s:g} Gb/s"
                yield one.judged(Verdict.WARN, "network.port-few-lanes", rate, f"{QDR_GBIT_S:g} Gb/s or more")
        elif one.used and (up or _is_only_board(one, every)) and one.port.state is None:
            yield one.judged(Verdict.UNKNOWN, "network.port-state-unknown")
        elif one.used and up:
            code = "network.port-not-configured" if _is_linked(one.port) else "network.port-down"
            yield one.judged(_sure(len(up)), code, one.port.state, "active")
        elif _is_linked(one.port):
            yield one.judged(Verdict.WARN, "network.port-without-manager", one.port.state, "active")
        elif _is_only_board(one, every):
            yield one.judged(Verdict.WARN, "network.port-odd", one.port.state)
        elif not one.used and one.port.state is not None:
            odd = len(equals) >= PRINTED and len(up) == len(equals) and not _is_spare(one, every)
            code = "network.port-odd" if odd else "network.port-unused"
            yield one.judged(Verdict.WARN if odd else Verdict.UNKNOWN, code, one.port.state)


def _is_only_board(one: Seen, every: list[Seen]) -> bool:
    """A spare part of another board has no equal here. Its GPUs have no other active port; the rest are all active."""
    same = [other for other in every if other.place == one.place and other is not one]
    near = (other for other in every if other.port.is_active and not {*other.gpus}.isdisjoint(one.gpus))
    lone = bool(one.gpus) and not any(other.kind == one.kind for other in same) and not any(near)
    return lone and len(same) >= PRINTED and all(other.port.is_active for other in same)


def _has_few_lanes(one: Seen) -> bool:
    number = (one.model or "").removeprefix("MT")
    known = number.isdigit() and int(number) in FROM_CONNECT_IB and one.port.link_layer == "infiniband"
    return known and one.port.is_active and (one.port.rate_gbit_s or QDR_GBIT_S) < QDR_GBIT_S


def _slower(one: Seen, up: list[RdmaPort]) -> Iterator[Finding]:
    rates = Counter(other.rate_gbit_s for other in up if other.rate_gbit_s is not None)
    rate = one.port.rate_gbit_s
    if rate is None and rates and one.used:
        yield one.judged(Verdict.UNKNOWN, "network.port-rate-unknown")
    faster = {other: count for other, count in rates.items() if rate is not None and other > rate}
    if faster:
        best, count = max(faster.items(), key=lambda item: (item[1] >= ENOUGH, item[0]))
        seen, wanted = f"{rate:g} Gb/s", f"{best:g} Gb/s"
        if one.used:
            yield one.judged(_sure(count), "network.port-slow", seen, wanted)
        elif count == len(up) >= PRINTED:  # all others have one rate
            yield one.judged(Verdict.WARN, "network.port-slower", seen, wanted)


def _sure(equals: int) -> Verdict:
    """FAIL where enough equal cards show what is usual; of two that differ either may be the odd one."""
    return Verdict.FAIL if equals >= ENOUGH else Verdict.WARN


LIMITS = (f"FAIL where {ENOUGH} or more equal cards of the host are active, or faster; WARN where one is",)
CHECK = quick_check(NAME, "hardware network", evaluate, NEEDS, limits=LIMITS)
