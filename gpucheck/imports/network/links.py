"""Link and module of a network port (ethtool, ethtool -m, mlxlink as text or JSON), and devlink health."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import objects, regex, spans, with_lines_above
from gpucheck.imports.network.ports import Port, part_of
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters, RdmaPort
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

PAIR = regex(r'^\s{0,24}"?(?P<name>[A-Z][\w /()\[\].-]{1,60}?)"?\s{0,40}:\s{1,8}"?(?P<value>[^"]{1,200}?)"?,?\s*$')
# The command or the first line of an output; its group names the port.
BEGIN = regex(
    r"^(?:\s{0,8}Settings for ([\w.@-]{1,60}):|\s{0,8}Operational Info\s*$|\s{0,24}Identifier\s{1,40}: 0x[0-9a-f]{2} |"
    r".{0,80}\bmlxlink\s.{0,80}?(?:-d|--device)[ =]([\w.-]{1,60})|"
    r".{0,80}\bethtool\s{1,4}(?:-m|--module-info)\s{1,4}([\w.-]{1,60}))"
)
COMMAND = regex(r"\b(?:ethtool|mlxlink)\s{1,4}-")
LINKS_INSIDE = regex(
    r"^(?:\s{0,24}(?:Support(?:ed|s)|Advertised|Link partner|Speed|Duplex|Lanes|Auto|Port:|PHYAD|Transceiver|MDI-X|"
    r"Wake-on|Current message|drv |Link (?:detected|Down|Error|:)|Identifier|Extended ident|Connector|Encoding|BR[, ]|"
    r"Rate|Length|Laser|Vendor|Option|Date code|Optical|Module|Alarm|Rcvr|Receiver|Transmit|[TR]x |Power|CLEI|Revision|"
    r"Active|Passive|Media|Attenuation|Cable|Max |State|Physical|Width|FEC|Loopback|Enabled|Status|Group|"
    r"Recommendation|Firmware|amBER|MFT|Time |Symbol|Effective|Raw |Temperature|Voltage|Bias|Compliance|Wavelength|"
    r"Digital|CDR|(?:Operational|Supported|Troubleshooting|Tool|Module|Physical)[\w ]{1,40}Info)|"
    r"\s{8,60}\d{3,7}base|-{4,}|-E- )"
)
LANES = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
SPEED = regex(r"^(?:(\d{1,7})Mb/s|(\d{1,4})(?:GbE|G\b|G_)|IB-([A-Z]{3}(?:10)?)\b)")
FIRST = regex(r"^(-?\d{1,4}(?:\.\d{1,4})?)")
RANGE = regex(r"\[-?[\d.]{1,8}\.\.(\d{1,4}(?:\.\d{1,3})?)\]")
COUNTERS = {
    "effective physical errors": "effective_physical_errors",
    "symbol errors": "symbol_errors",
    "link down counter": "link_downed",
    "link error recovery counter": "link_error_recovery",
}


class Link(NamedTuple):
    """One output. device: empty where neither it nor its command names one. line: its first; values by name."""

    device: str
    line: int
    values: dict[str, str]


def links_parse(lines: list[str]) -> Part | None:
    links = [link for link in _links(lines) if link.values]
    if not links:
        return None
    part = part_of(list(_ports(links)), "network port")
    counters = tuple(found for link in links if (found := _counters(link)).values)
    messages = (*part.messages, *(message for link in links for message in _messages(link)))
    looked_at = part.looked_at if part.facts.rdma else ("link and module of a network port",)
    return Part(facts=Facts(rdma=part.facts.rdma, counters=counters), messages=messages, looked_at=looked_at)


def _links(lines: Sequence[str]) -> Iterator[Link]:
    link = Link("", 1, {})
    for number, line in enumerate(lines, start=1):
        begin, pair = BEGIN.match(line), PAIR.match(line)
        name = pair["name"].lower() if pair else ""
        if begin or (name in link.values and name in ("state", "identifier")):
            named = next((text for text in begin.groups() if text), "") if begin else ""
            if link.values or named:
                yield link
                link = Link(named, number, {})
        if pair:
            link.values.setdefault(name, pair["value"].strip())
    yield link


def _ports(links: Sequence[Link]) -> Iterator[Port]:
    for link in links:
        detected, state = link.values.get("link detected"), link.values.get("state", "").lower()
        if detected is not None:
            state = "active" if detected.startswith("yes") else "down"
        if not link.device or not state.isalpha():
            continue
        speed = link.values.get("speed", "")
        physical = link.values.get("physical state")
        yield Port(
            link.device,
            RdmaPort(
                number=1,
                state=state,
                physical=physical.lower() if physical else None,
                rate_gbit_s=_rate(speed, link.values.get("width", "")),
                link_layer="infiniband" if speed.startswith("IB-") else "ethernet",
            ),
        )


def _rate(speed: str, width: str) -> float | None:
    """Return Gb/s. mlxlink gives InfiniBand by name and lanes, ethtool megabits."""
    match, lanes = SPEED.match(speed), FIRST.match(width)
    if match is None:
        return None
    if match[1]:
        return int(match[1]) / 1000
    if match[2]:
        return float(match[2])
    return LANES[match[3]] * float(lanes[1]) if lanes and match[3] in LANES else None


def _counters(link: Link) -> PortCounters:
    values = {to: int(link.values[name]) for name, to in COUNTERS.items() if link.values.get(name, "").isdecimal()}
    return PortCounters(port=link.device, values=values)


def _messages(link: Link) -> Iterator[Message]:
    of = f"{link.device}: " if link.device else ""
    shown = link.values.get("module temperature", link.values.get("temperature [c]", ""))
    now, ends = FIRST.match(shown), RANGE.search(shown)
    alarm = ends or FIRST.match(link.values.get("module temperature high alarm threshold", ""))
    # Copper cables report zeros.
    if now and alarm and float(now[1]) >= float(alarm[1]) > 0:
        text = f"{of}module at {now[1]} C, high alarm at {alarm[1]} C"
        yield Message(key="nic-link.module-hot", text=text, line=link.line)
    advice = link.values.get("recommendation", "No issue")
    if not advice.startswith(("No issue", "N/A")):
        yield Message(key="nic-link.recommendation", text=f"{of}{advice}", line=link.line)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    found = [
        one for one in spans(lines, BEGIN, LINKS_INSIDE, COMMAND) if any(map(PAIR.match, lines[one[0] : one[1] + 1]))
    ]
    return with_lines_above(lines, sorted([*found, *objects(lines, '"Operational Info"')]), BEGIN.match)


LINKS = Kind(
    name="nic-link",
    title="the link or module of a network port (ethtool, ethtool -m, mlxlink)",
    parse=links_parse,
    hints=("Settings for ", "Operational Info", "Identifier", "mlxlink", "ethtool"),
    blocks=_blocks,
)


# devlink health show: what the driver of a card detected itself, by reporter.
NAME = "devlink-health"
DEVICE = regex(r"^\s{0,12}((?:pci|auxiliary)/[\w.:-]{4,60}(?:/\d{1,8})?):\s*$")
REPORTER = regex(r"^\s{1,16}reporter (\w{1,40})\s*$")
STATE = regex(r"^\s{1,20}state (healthy|error) error (\d{1,12}) recover (\d{1,12})\b")
DEVLINK_INSIDE = regex(r"^\s{1,20}(?:reporter \w|state (?:healthy|error) error \d|last_dump_date|grace_period|auto_)")


def devlink_parse(lines: list[str]) -> Part | None:
    """A reporter in state error is a fault now; a count of one that is healthy has no date."""
    device = reporter = ""
    messages, count = [], 0
    for number, line in enumerate(lines, start=1):
        if match := DEVICE.match(line):
            device = match[1]
        elif match := REPORTER.match(line):
            reporter = match[1]
        elif match := STATE.match(line):
            count += 1
            text = f"{device} reporter {reporter}: {line.strip()}"[:200]
            if match[1] == "error" or int(match[2]):
                key = f"{NAME}.{'error' if match[1] == 'error' else 'recovered'}"
                messages.append(Message(key=key, text=text, line=number))
    if not count:
        return None
    return Part(messages=tuple(messages), looked_at=(f"devlink health: {counted(count, 'reporter')}",))


DEVLINK = Kind(
    name=NAME,
    title="the output of devlink health",
    parse=devlink_parse,
    hints=("reporter ",),
    blocks=lambda lines: spans(lines, DEVICE, DEVLINK_INSIDE),
)
