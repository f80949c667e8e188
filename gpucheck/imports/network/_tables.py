"""Blocks of "name: value" lines below a line that names a card, as ibstat, ibstatus and ibv_devinfo print them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports.network._ports import Port, part_of
from gpucheck.model.diagnosis.paste import Part

NUMBER = re.compile(r"^(\d{1,4}(?:\.\d{1,2})?)")
STATE = re.compile(r"^(?:\d: )?(?:PORT_)?([A-Za-z]\w{1,20})")


class Format(NamedTuple):
    """One tool's form. card: begins a card, port: begins a port (its group is the number); fields: name -> field."""

    card: re.Pattern[str]
    port: re.Pattern[str]
    fields: dict[str, str]


def ports(lines: Sequence[str], form: Format) -> list[Port]:
    """Every port in order."""
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
    """The kind of one tool."""

    def parse(lines: list[str]) -> Part:
        found = ports(lines, form)
        if not found:
            raise ImportProblem(
                f"no port in {title}", why="no line begins a port of a card", do="Give the complete output"
            )
        return part_of(found)

    return Kind(name=name, title=title, parse=parse, hints=hints, blocks=lambda lines: spans(lines, begin, inside))
