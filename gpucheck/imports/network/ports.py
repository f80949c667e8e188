"""Ports of network cards as the tools of several packages print them: state, GID tables, link, module, driver."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import left_out, objects, regex, spans, with_lines_above
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import PortCounters, RdmaDevice, RdmaPort
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
# Of four lanes; mlxlink knows cards from ConnectX-4 on, which have no slower InfiniBand.
QDR_GBIT_S = 40.0
STATE = regex(r"^(?:\d: )?(?:PORT_)?([A-Za-z]\w{1,20})")


# What ibstat, ibstatus and ibv_devinfo call it -> a field of the port, or of its device.
FIELDS = {
    **dict.fromkeys(("ca type", "vendor_part_id"), "model"),
    **dict.fromkeys(("system image guid", "sys_image_guid"), "card"),
    **dict.fromkeys(("physical state", "phys state", "phys_state"), "physical"),
    **dict.fromkeys(("link layer", "link_layer"), "link_layer"),
    **dict.fromkeys(("base lid", "port_lid"), "lid"),
    "state": "state",
    "rate": "rate",
    # ibv_devinfo -v: 4X (2), then 100.0 Gbps (128).
    "active_width": "width",
    "active_speed": "speed",
}
LID = regex(r"^(0x[0-9a-f]{1,4}|\d{1,5})$")


def _with(port: RdmaPort, field: str, value: str) -> RdmaPort:
    if field == "rate":
        match = NUMBER.match(value)
        return replace(port, rate_gbit_s=float(match[1]) if match else None)
    if field == "lid":
        return replace(port, lid=int(value, 0)) if LID.match(value) else port
    match = STATE.match(value)
    return replace(port, **{field: match[1].lower()}) if match else port


def _times(width: str, speed: str) -> str:
    lanes, each = NUMBER.match(width), NUMBER.match(speed)
    return f"{float(lanes[1]) * float(each[1]):g}" if lanes and each else ""


def kind(name: str, title: str, hint: str, card: re.Pattern[str], port: re.Pattern[str], inside: str) -> Kind:
    """card: begins a device; port: begins a port, whose number is the last group."""

    def parse(lines: list[str]) -> Part | None:
        found: list[Port] = []
        single: dict[int, str] = {}
        device, values, named = "", dict[str, str](), set[str]()
        for line in lines:
            if match := card.match(line):
                device, values = match[1], {}
                named.add(device)
            if match := port.match(line):
                number = int(match[match.re.groups])
                found.append(Port(device, RdmaPort(number=number), values.get("model"), values.get("card")))
                continue
            label, _, value = (text.strip() for text in line.partition(":"))
            field = FIELDS.get(label.lower())
            if field in ("model", "card", "width"):
                values[field] = value[:60]
                continue
            if field == "speed":
                field, value = "rate", _times(values.get("width", ""), value)
            if field and found and found[-1].device == device:
                found[-1] = found[-1]._replace(port=_with(found[-1].port, field, value))
                single |= {len(found) - 1: value} if field == "rate" and "(1X" in value else {}
        whole = {one.device for one in found} - {one.device for one in found if one.port.state is None}
        cut = sorted(named - whole)
        why = f"no state of a port of {', '.join(cut[:6])}: the paste is cut short"
        unread = (left_out(len(lines), len(lines), why, lines[-1]),) if cut else ()
        # Of Ethernet one lane is usual, and from NDR on of a cable for four hosts.
        few = tuple(
            Message(key="nic-link.few-lanes", text=f"{one.device} port {one.port.number}: {words}")
            for place, words in single.items()
            if (one := found[place]).port.is_active
            and one.port.link_layer == "infiniband"
            and (one.port.rate_gbit_s or QDR_GBIT_S) < QDR_GBIT_S
        )
        part = part_of(found)
        return replace(part, unread=unread, messages=(*part.messages, *few)) if found else None

    within = regex(inside)
    return Kind(name, title, parse, hints=(hint,), blocks=lambda lines: spans(lines, card, within))


IBSTAT = kind(
    "ibstat",
    "the output of ibstat",
    "CA '",
    regex(r"^\s{0,12}CA '([\w.-]{1,60})'"),
    regex(r"^\s{0,24}Port (\d{1,3}):\s*$"),
    r"^\s{0,32}(?:CA type|Number of ports|Firmware version|Hardware version|Node GUID|System image GUID|"
    r"Port \d{1,3}|State|Physical state|Rate|Base lid|LMC|SM lid|Capability mask|Port GUID|Link layer)\s{0,4}:",
)
# The older script of the same package.
STATUS = regex(r"^\s{0,12}Infiniband device '([\w.-]{1,60})' port (\d{1,3}) status:")
IBSTATUS = kind(
    "ibstat",
    "the output of ibstatus",
    "Infiniband device",
    STATUS,
    STATUS,
    r"^\s{0,24}(?:default gid|base lid|sm lid|state|phys(?:ical)? state|rate|link_layer):",
)
IBV_DEVINFO = kind(
    "ibv_devinfo",
    "the output of ibv_devinfo",
    "hca_id",
    regex(r"^\s{0,12}hca_id:\s{1,16}([\w.-]{1,60})"),
    regex(r"^\s{0,40}port:\s{1,16}(\d{1,3})\s*$"),
    r"^\s{0,48}(?:transport|fw_ver|node_guid|sys_image_guid|vendor_id|vendor_part_id|hw_ver|board_id|phys_port_cnt|"
    r"port|Device ports|state|"
    r"max_\w{2,40}|active_\w{3,10}|sm_lid|port_\w{3,20}|link_layer|phys_state|page_size_cap|device_cap\w{0,20}|local_ca_\w{3,20}|"
    r"atomic_cap|\w{3,30}_caps?|odp_caps|hca_core_clock|GID\[|\w{2,30}_(?:count|len|supported|mask|delay|lid|lmc|sl|timeout|cntr|reply))"
    r"\s{0,4}:|^\s{8,60}[A-Z][A-Z0-9_]{4,40}\s*$|^\s{0,48}GID\[",
)


# rdma link (iproute2) and ibdev2netdev: one line for each port.
LINK = regex(
    r"^\s{0,12}(?:link |\d{1,3}/\d{1,3}: )(?P<name>[\w.-]{1,60})/(?P<port>\d{1,3}):? "
    r"(?:.{0,100}?\blid (?P<lid>\d{1,5})\b)?.{0,200}?\bstate (?P<state>[A-Z_]{2,20})\b"
    r"(?:.{0,100}?\bphysical_state (?P<physical>[A-Z_]{2,30}))?"
)
NETDEV = regex(
    r"^\s{0,12}(?:[\da-f:.]{12,16} )?(?P<name>[\w.-]{1,60})(?: \(.{0,80})? port (?P<port>\d{1,3})"
    r"(?: \((?P<own>[A-Z]{2,12}) *\))? ==> (?P<netdev>[\w.-]{1,60}) \((?P<state>Up|Down)\)\s*$"
)


IPOIB = {"Up": "active", "Down": "down"}


def rdma_link_parse(lines: list[str]) -> Part | None:
    found = [
        (match["name"], match["port"], match["state"].lower(), (match["physical"] or "").lower() or None, match["lid"])
        for match in filter(None, map(LINK.match, lines))
    ]
    known = {row[:2] for row in found}
    # ibdev2netdev prints the state of the interface, which an IPoIB interface does not have; with -v also the port's.
    found += [
        (
            match["name"],
            match["port"],
            (match["own"] or {"Up": "active"}.get(match["state"], "down")).lower(),
            None,
            None,
        )
        for match in filter(None, map(NETDEV.match, lines))
        if (match["name"], match["port"]) not in known
    ]
    # Only InfiniBand has a LID here.
    ports = [
        Port(name, replace(_port_of(lid), number=int(port), state=state, physical=physical))
        for name, port, state, physical, lid in found
    ]
    return part_of(ports) if ports else None


def _port_of(lid: str | None) -> RdmaPort:
    return RdmaPort(number=0, lid=int(lid), link_layer="infiniband") if lid else RdmaPort(number=0)


RDMA_LINK = Kind(
    name="rdma-link",
    title="the output of rdma link or ibdev2netdev",
    parse=rdma_link_parse,
    hints=("state ", " ==> "),
    line=lambda line: LINK.match(line) is not None or NETDEV.match(line) is not None,
)


# GID tables as show_gids prints them, and as the GID lines of ibv_devinfo -v alone.
GIDS_NAME = "show_gids"
VERBOSE = regex(
    r"^\s{0,40}GID\[\s{0,4}(?P<index>\d{1,3})\]:\s{1,24}(?P<gid>[0-9a-fA-F:.]{2,45}|ip-\w{8})"
    r"(?:, (?:IB/)?RoCE v(?P<version>[12]))?\s*$"
)
ROW = regex(
    r"^\s{0,40}(?P<device>[\w.-]{1,60})\s{1,16}(?P<port>\d{1,3})\s{1,16}(?P<index>\d{1,3})\s{1,16}"
    r"(?P<gid>[0-9a-f]{4}(?::[0-9a-f]{4}){7}|ip-\w{8})\s{1,40}(?:(?:[\d.]{7,15}|ip-\w{8})\s{1,24})?v(?P<version>[12])\b"
)
AROUND = regex(r"^\s{0,40}(?:DEV\s{1,16}PORT\s{1,16}INDEX\s|---\s{1,16}----\s{1,16}-----|n_gids_found=\d)")
# Version and whether the address is routed, by index.
Table = dict[int, tuple[str | None, bool]]
MOST_TABLES = 256


def gids_parse(lines: list[str]) -> Part | None:
    tables = list(_tables(lines))[:MOST_TABLES]
    if not tables:
        return None
    routed = sorted(
        {i for _, table in tables for i, (version, is_routed) in table.items() if version == "2" and is_routed}
    )
    where = f": RoCE v2 of a routed address at index {', '.join(map(str, routed))}" if routed else ""
    return Part(messages=tuple(_differing(tables)), looked_at=(f"{counted(len(tables), 'GID table')}{where}",))


def _tables(lines: list[str]) -> Iterator[tuple[str, Table]]:
    port, table = "", Table()
    for match in filter(None, map(_entry, lines)):
        index, own = int(match["index"]), "/".join(match.groupdict().get(name) or "" for name in ("device", "port"))
        if table and (own != port or index <= max(table)):
            yield port, table
            table = {}
        port = own
        table[index] = (match["version"], _is_routed(match["gid"]))
    if table:
        yield port, table


def _entry(line: str) -> re.Match[str] | None:
    return VERBOSE.match(line) or ROW.match(line)


def _is_routed(gid: str) -> bool:
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return False
    return not address.is_link_local and int(address) != 0


def _differing(tables: list[tuple[str, Table]]) -> Iterator[Message]:
    first: dict[str, Table] = {}
    for port, table in tables:
        known = first.setdefault(port, table)
        # Addresses differ between hosts, and a redacted one (ip-0a1b2c3d) is not known to be routed.
        if {i: version for i, (version, _) in known.items()} != {i: version for i, (version, _) in table.items()}:
            text = f"GID tables with {len(known)} and {len(table)} entries"
            yield Message(key=f"{GIDS_NAME}.differ", text=text)
            return


GIDS = Kind(
    name=GIDS_NAME,
    title="the output of show_gids",
    parse=gids_parse,
    hints=("GID[", "INDEX", "n_gids_found", " v1", " v2"),
    line=lambda line: _entry(line) is not None or AROUND.match(line) is not None,
)


# Link and module of a port (ethtool, ethtool -m, mlxlink as text or JSON).
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
    r"\s{8,60}\d{3,7}base|\s{0,24}-{4,}|-E- )"
)
LANES = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
SPEED = regex(r"^(?:(\d{1,7})Mb/s|(\d{1,4})(?:GbE|G\b|G_)|IB-([A-Z]{3}(?:10)?)\b)")
FIRST = regex(r"^(-?\d{1,4}(?:\.\d{1,4})?)")
RANGE = regex(r"\[-?[\d.]{1,8}\.\.(\d{1,4}(?:\.\d{1,3})?)\]")
# Of each lane, with the limits that the module states; copper cables report zeros.
DECIMAL = r"-?\d{1,5}(?:\.\d{1,4})?"
BY_LANE = regex(rf"^({DECIMAL}(?:,{DECIMAL}){{0,15}}) \[({DECIMAL})\.\.({DECIMAL})\]$")
OF_LANES = ("rx power current [dbm]", "tx power current [dbm]", "bias current [ma]")
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
    if link.values.get("state", "").lower() == "active":
        yield from _of_lanes(link, of)
    advice = link.values.get("recommendation", "No issue")
    if not advice.startswith(("No issue", "N/A")):
        yield Message(key="nic-link.recommendation", text=f"{of}{advice}", line=link.line)


def _of_lanes(link: Link, of: str) -> Iterator[Message]:
    """Lanes of an active link: of InfiniBand too few, or too few within the limits of the module."""
    width = link.values.get("width", "")
    lanes, rate = FIRST.match(width), _rate(link.values.get("speed", ""), width)
    if link.values.get("speed", "").startswith("IB-") and rate is not None and rate < QDR_GBIT_S:
        yield Message(key="nic-link.few-lanes", text=f"{of}{rate:g} Gb/s with {width}", line=link.line)
    for name in OF_LANES:
        found = BY_LANE.match(link.values.get(name, ""))
        if found is None or lanes is None or found[2] == found[3]:
            continue
        inside = [float(found[2]) <= float(value) <= float(found[3]) for value in found[1].split(",")]
        if sum(inside) < min(len(inside), int(float(lanes[1]))):
            text = f"{of}{name}: {found[0]}"
            yield Message(key="nic-link.module-outside", text=text, line=link.line)


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
DEVLINK_NAME = "devlink-health"
DEVICE = regex(r"^\s{0,12}((?:pci|auxiliary)/[\w.:-]{4,60}(?:/\d{1,8})?):\s*$")
REPORTER = regex(r"^\s{1,16}reporter (\w{1,40})\s*$")
REPORTED = regex(r"^\s{1,20}state (healthy|error) error (\d{1,12}) recover (\d{1,12})\b")
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
        elif match := REPORTED.match(line):
            count += 1
            text = f"{device} reporter {reporter}: {line.strip()}"[:200]
            if match[1] == "error" or int(match[2]):
                key = f"{DEVLINK_NAME}.{'error' if match[1] == 'error' else 'recovered'}"
                messages.append(Message(key=key, text=text, line=number))
    if not count:
        return None
    return Part(messages=tuple(messages), looked_at=(f"devlink health: {counted(count, 'reporter')}",))


DEVLINK = Kind(
    name=DEVLINK_NAME,
    title="the output of devlink health",
    parse=devlink_parse,
    hints=("reporter ",),
    blocks=lambda lines: spans(lines, DEVICE, DEVLINK_INSIDE),
)
