"""Counters of network ports as five tools print them, and as files of sysfs that were printed with their paths.

A reading ends where a name comes again: two outputs of the same command are two readings of the same port.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import regex, spans
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters
from gpucheck.model.paste import Part
from gpucheck.printable import counted


class Format(NamedTuple):
    """One tool's form. port: names the port (its groups), where it differs from the line of its counters; counter:
    every match in a line is one, name and value."""

    port: re.Pattern[str]
    counter: re.Pattern[str]


FORMATS = (
    # grep . /sys/class/infiniband/*/ports/*/counters/*, and the same of an interface
    Format(
        regex(r"(?:^|/)([\w.-]{1,60})(?:/ports/(\d{1,3})/(?:hw_)?counters|/statistics)/\w{1,60}:"),
        regex(r"(?:^|/)(?:hw_counters|counters|statistics)/(\w{1,60}):(\d{1,20})\s*$"),
    ),
    # ethtool -S: the command names the interface, the output does not
    Format(
        regex(r"\bethtool\s{1,4}(?:-S|--statistics)\s{1,4}([\w.@-]{1,60})|^\s{0,8}NIC statistics:"),
        regex(r"^\s{0,16}(?:\[[\w.-]{1,20}\]: )?([a-z]\w{1,60}): (\d{1,20})\s*$"),
    ),
    # perfquery
    Format(
        regex(r"^# Port (?:extended )?counters: (Lid \d{1,6} port \d{1,3})"),
        regex(r"^\s{0,8}([A-Z]\w{1,50}):\.{1,60}(\d{1,20})\s*$"),
    ),
    # ibqueryerrors
    Format(
        regex(r"^\s{0,8}(GUID 0x[0-9a-f]{1,16} port (?:\d{1,3}|ALL)):"),
        regex(r"\[([A-Z]\w{1,50}) == (\d{1,20})\b"),
    ),
    # rdma statistic, with -p one counter a line
    Format(
        regex(r"^\s{0,8}link ([\w.-]{1,60}/\d{1,3})(?:\s|$)"),
        regex(r"(?:(?<=\s)|^)([a-z][a-z0-9]*_\w{1,50}) (\d{1,20})(?=\s|$)"),
    ),
)
LONGEST = 8000  # characters of a line that are looked at; rdma statistic prints one of 1500
INTERFACE = regex(r"^\s{0,8}\d{1,6}: ([\w.-]{1,60})(?:@[\w.-]{1,60})?: <")
COLUMNS = regex(r"^\s{2,12}([RT]X)(?: errors)?:\s{1,20}(?:bytes|length|aborted)\b(.{0,120})$")
UNAVAILABLE = regex(r"/(?:hw_)?counters/\w{1,60}:N/A\b")  # of a virtual function
COMMAND = regex(r"\bethtool\s{1,4}-|\bgrep\s")
BEGIN = regex(
    r"^(?:.{0,200}\bethtool\s{1,4}(?:-S|--statistics)\s|\s{0,8}NIC statistics:|# Port (?:extended )?counters: |"
    r"\s{0,8}GUID 0x[0-9a-f]{1,16} port \S{1,4} ?: ?\[|\s{0,8}link [\w.-]{1,60}/\d{1,3}\s*(?:$|[a-z]\w{2,50} \d)|"
    r".{0,200}/(?:hw_counters|counters|statistics)/\w{1,60}:|\s{0,8}\d{1,6}: [\w.@-]{1,120}: <|"
    r"\s{0,16}(?:[rt]x_\w{1,50}|link_down_events_phy|outbound_pci_\w{1,40}): \d{1,20}\s*$|"
    r".{0,80}\bgrep\b.{0,80}/(?:hw_)?counters/\*)"
)
INSIDE = regex(
    r"^(?:\s{0,16}(?:\[[\w.-]{1,20}\]: )?[a-z]\w{1,60}: \d{1,20}\s*$|\s{0,8}[A-Z]\w{1,50}:\.{2}|#|Errors for |"
    r"\s{1,12}Link info: |\s{0,12}[a-z]\w{2,50} \d{1,20}(?:\s|$)|\s{1,8}Optional-set:|"
    r"\s{1,12}(?:link/|altname |[RT]X|vf \d|alias )|\s{2,24}\d{1,20}(?:\s{1,24}\d{1,20}){1,6}\s*$)"
)
SNAKE = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def linux_name(name: str) -> str:
    """Return ``link_downed`` for the ``LinkDownedCounter`` of infiniband-diags; names of Linux as they are."""
    return SNAKE.sub("_", name.removesuffix("Counter")).lower()


def parse(lines: list[str]) -> Part | None:
    found = [PortCounters(port=port, values=values) for port, values in _readings(lines) if values]
    if not found and any(map(UNAVAILABLE.search, lines)):
        return Part(looked_at=("counters of a network port, which gives no values (N/A)",))
    if not found:
        return None
    ports = len({one.port for one in found})
    return Part(facts=Facts(counters=tuple(found)), looked_at=(f"counters of {counted(ports, 'network port')}",))


def _readings(lines: Sequence[str]) -> Iterator[tuple[str, dict[str, int]]]:
    port, values = "", dict[str, int]()
    for one, name, value in _counters(lines):
        if one != port or name in values:
            yield port, values
            port, values = one, {}
        values[name] = value
    yield port, values


def _counters(lines: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    port = ""
    for before, line in pairwise(["", *(line[:LONGEST] for line in lines)]):
        if interface := INTERFACE.match(line):
            port = interface[1]
        elif columns := COLUMNS.match(before):
            names = before.partition(":")[2].split()
            way = columns[1].lower()
            for name, value in zip(names, line.split(), strict=False):
                if value.isdecimal():
                    yield port, f"{way}_{name}", int(value[:20])
        for form in FORMATS:
            named = form.port.search(line)
            if named and (any(named.groups()) or not form.port.search(before)):
                port = "/".join(part for part in named.groups() if part)
            every = form.counter.findall(line)
            yield from ((port, linux_name(name), int(value)) for name, value in every)
            if every or named:
                break


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    for first, last in spans(lines, BEGIN, INSIDE, COMMAND):
        block = lines[first : last + 1]
        if next(_counters(block), None) is not None or any(map(UNAVAILABLE.search, block)):
            yield first, last


KIND = Kind(
    name="nic-counters",
    title="counters of network ports (ethtool -S, perfquery, ibqueryerrors, rdma statistic, ip -s link, sysfs)",
    parse=parse,
    hints=(
        "ethtool",
        "NIC statistics:",
        "ounters: Lid",
        "GUID 0x",
        "ounters/",
        "/statistics/",
        "> mtu ",
        "rx_",
        "tx_",
        "link_down",
        "outbound_pci",
    ),
    blocks=_blocks,
)
