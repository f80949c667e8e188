"""Ports of RDMA devices as the tools of several packages print them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._regex import regex
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

NAME = "rdma-port"


class Port(NamedTuple):
    """One port and its device, as a tool prints them; None is not reported. card: equal for the ports of one card."""

    device: str
    port: RdmaPort
    model: str | None = None
    card: str | None = None


def part_of(ports: Sequence[Port], what: str = "RDMA port") -> Part:
    """Return the devices with their ports; of several outputs the last, and where they differ."""
    devices: dict[str, RdmaDevice] = {}
    changed: dict[str, Message] = {}
    for one in ports:
        known = devices.get(one.device, RdmaDevice(name=one.device, model=one.model, card=one.card))
        others = tuple(port for port in known.ports if port.number != one.port.number)
        before = next((port for port in known.ports if port.number == one.port.number), one.port)
        if before.state != one.port.state:
            text = f"{one.device} port {one.port.number}: {before.state}, then {one.port.state}"
            changed.setdefault(f"{one.device}/{one.port.number}", Message(key=f"{NAME}.changed", text=text))
        devices[one.device] = replace(known, ports=(*others, one.port))
    every = [port for device in devices.values() for port in device.ports]
    up = sum(port.is_active for port in every)
    count = f"{counted(len(every), what)}, of which {up} {'is' if up == 1 else 'are'} active"
    return Part(facts=Facts(rdma=tuple(devices.values())), messages=tuple(changed.values()), looked_at=(count,))


NUMBER = regex(r"^(\d{1,4}(?:\.\d{1,2})?)")
STATE = regex(r"^(?:\d: )?(?:PORT_)?([A-Za-z]\w{1,20})")


class Format(NamedTuple):
    """One tool's form. card: begins a device, port: begins a port (its group is the number); fields: name -> field."""

    card: re.Pattern[str]
    port: re.Pattern[str]
    fields: dict[str, str]


def ports(lines: Sequence[str], form: Format) -> list[Port]:
    found: list[Port] = []
    device, values = "", dict[str, str]()
    for line in lines:
        if match := form.card.match(line):
            device, values = match[1], {}
        if match := form.port.match(line):
            found.append(Port(device, RdmaPort(number=int(match[1])), values.get("model"), values.get("card")))
            continue
        name, _, value = (text.strip() for text in line.partition(":"))
        field = form.fields.get(name.lower())
        if field in ("model", "card"):
            values[field] = value[:60]
        elif field and found and found[-1].device == device:
            found[-1] = found[-1]._replace(port=_with(found[-1].port, field, value))
    return found


def _with(port: RdmaPort, field: str, value: str) -> RdmaPort:
    """The port with a value as a tool prints it."""
    if field == "rate":
        match = NUMBER.match(value)
        return replace(port, rate_gbit_s=float(match[1]) if match else None)
    match = STATE.match(value)
    return replace(port, **{field: match[1].lower()}) if match else port


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
