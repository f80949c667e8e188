"""Ports of RDMA cards: their state, independent of the tool that printed it, and its meaning."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._regex import regex
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

NAME = "rdma-port"
UP = ("active",)
HALF_UP = ("initializing", "init", "armed")
ENOUGH_SAME_CARD = 3


@dataclass
class Port:
    """One port. state, physical: lower-case words. card: what equal ports have in common. board: one card.

    rate: Gb/s. line: where it stands. None is not reported.
    """

    name: str
    line: int
    state: str | None = None
    physical: str | None = None
    rate: float | None = None
    layer: str | None = None
    card: str | None = None
    board: str | None = None

    @property
    def is_up(self) -> bool:
        return self.state in UP

    @property
    def is_down(self) -> bool:
        return self.state in ("down", "disabled")

    def __str__(self) -> str:
        words = [self.name, self.card or "", f"state {self.state or 'unknown'}"]
        words += [f"physical state {self.physical}"] if self.physical else []
        words += [f"{self.rate:g} Gb/s"] if self.rate is not None else []
        return ", ".join(word for word in words if word)


def part_of(ports: Sequence[Port]) -> Part:
    up = sum(port.is_up for port in ports)
    count = f"{counted(len(ports), 'RDMA port')}, of which {up} {'is' if up == 1 else 'are'} active"
    return Part(messages=tuple(_messages(ports)), looked_at=(count,))


def _messages(ports: Sequence[Port]) -> Iterator[Message]:
    for port in ports:
        slug = _state(port, ports) or _rate(port, ports)
        if slug:
            yield Message(key=f"{NAME}.{slug}", text=str(port), line=port.line)


def _state(port: Port, ports: Sequence[Port]) -> str | None:
    is_linked = (port.physical or "").replace("_", "").replace(" ", "") == "linkup"
    if port.state in HALF_UP or (port.is_down and is_linked and port.layer == "infiniband"):
        return "no-subnet"
    if not port.is_down:
        return None
    same_card = [other for other in ports if other is not port and port.card and other.card == port.card]
    down = [other for other in same_card if other.is_down]
    up = sum(other.is_up for other in same_card)
    # A card with two ports of which one is used has a spare one.
    is_spare = any(other.is_up and port.board and other.board == port.board for other in same_card)
    return "one-down" if up >= ENOUGH_SAME_CARD and not down and not is_spare else "down"


def _rate(port: Port, ports: Sequence[Port]) -> str | None:
    """Slower than all other active ports of the same product, which are equally fast."""
    if not port.is_up or not port.rate or not port.card:
        return None
    others = {o.rate for o in ports if o is not port and o.is_up and o.card == port.card and o.layer == port.layer}
    count = sum(1 for o in ports if o is not port and o.is_up and o.card == port.card and o.layer == port.layer)
    best = next(iter(others)) if len(others) == 1 else None
    return "slower" if best is not None and count >= ENOUGH_SAME_CARD and port.rate < best else None


NUMBER = regex(r"^(\d{1,4}(?:\.\d{1,2})?)")
STATE = regex(r"^(?:\d: )?(?:PORT_)?([A-Za-z]\w{1,20})")


class Format(NamedTuple):
    """One tool's form. card: begins a card, port: begins a port (its group is the number); fields: name -> field."""

    card: re.Pattern[str]
    port: re.Pattern[str]
    fields: dict[str, str]


def ports(lines: Sequence[str], form: Format) -> list[Port]:
    found: list[Port] = []
    card, values = "", dict[str, str]()
    now: Port | None = None
    for number, line in enumerate(lines, start=1):
        if match := form.card.match(line):
            card, values, now = match[1], {}, None
        is_port = form.port.match(line)
        if is_port:
            now = Port(f"{card} port {is_port[1]}", number, card=values.get("card"), board=values.get("board"))
            found.append(now)
            continue
        name, _, value = (text.strip() for text in line.partition(":"))
        field = form.fields.get(name.lower())
        if field in ("card", "board"):
            values[field] = value[:60]
        elif field and now is not None:
            _set(now, field, value)
    return found


def _set(port: Port, field: str, value: str) -> None:
    if field == "rate":
        match = NUMBER.match(value)
        port.rate = float(match[1]) if match else None
    elif match := STATE.match(value):
        setattr(port, field, match[1].lower())


def kind(
    name: str, title: str, form: Format, inside: re.Pattern[str], hints: tuple[str, ...], begin: re.Pattern[str]
) -> Kind:
    def parse(lines: list[str]) -> Part:
        found = ports(lines, form)
        if not found:
            raise ImportProblem(
                f"no port in {title}", why="no line begins a port of a card", do="Give the complete output"
            )
        return part_of(found)

    return Kind(name=name, title=title, parse=parse, hints=hints, blocks=lambda lines: spans(lines, begin, inside))
