"""From lines of the kernel log to whole messages, and to what they report.

The driver and the kernel spread some messages over several lines: sentences of NVRM, error records of the firmware,
stack traces. Each becomes one text. Nothing here is unbounded: long lines are cut, joins end after a number of lines.
A message is an Xid or SXid, by its code and for some codes by the rest of the line, or of a class of
kernel_messages.yml.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from gpucheck.knowledge.causes import Advice
from gpucheck.knowledge.messages import Confidence, KernelMessage, Verdict, follows
from gpucheck.knowledge.messages import messages as classes
from gpucheck.knowledge.xid import SXID_CAUSE, Catalogued, Xid, nvlink5, recovery_action, sxid_family, sxids, xids
from gpucheck.model import KernelLine
from gpucheck.model.finding import Action, Owner

MAX_LINE = 2048  # the kernel cuts its own lines at about 1000 characters
MAX_TEXT = 8192
BUS = (
    r"(?P<bus>(?<![0-9a-fA-F])(?<![0-9a-fA-F]:)(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F](?:\.[0-7])?"
    r"(?![0-9a-fA-F]|:[0-9a-fA-F]))"
)
SENTENCE = re.compile(
    r"NVRM: (?:The NVIDIA (?:v?GPU [0-9a-fA-F:.]{4,20}|\S.{0,80}GPU installed)|API mismatch:|This PCI I/O region"
    r"|request_mem_region|This can occur|Failing GPU memory)"
)
OWN_SENTENCE = re.compile(r"NVRM: (?:Xid|GPU |The NVIDIA|loading|None of|No NVIDIA|RmInit|rm_|This |API )")
SENTENCE_LINES = 7
RECORD = re.compile(r"(?:\{\d{1,9}\})?\[Hardware Error\]:")
RECORD_LINES = 40
TRACE = re.compile(
    r"blocked for more than \d|soft lockup|\bBUG:|general protection fault|\bOops\b|hard LOCKUP|kernel BUG at"
)
TRACE_PART = re.compile(
    r"\+0x[0-9a-f]+/0x|Call Trace|Tainted|\btask:|RIP:|RSP:|RAX:|RDX:|RBP:|R10:|R13:|TASK>|IRQ>|Code:|echo 0 >"
    r"|Hardware name|Workqueue|\bCPU: \d|[FC]S: |CR2: |odules linked in|PKRU"
)
TRACE_LINES = 60
NAMED_GPU = re.compile(rf"(?:NVRM: (?:Xid \(|GPU (?:at )?|The NVIDIA v?GPU )(?:PCI:)?|\bnvidia ){BUS}")
NAMED_SWITCH = re.compile(rf"\bnvidia-nvswitch(?:\d{{0,3}}: SXid \(PCI:| ){BUS}")
NAMED_BY_DRIVER = re.compile(rf"\b(?P<driver>[a-z][\w-]{{1,30}}) {BUS}: ")
NETWORK = {"mlx5_core", "mlx4_core", "bnxt_en"}
MAY_MATTER = {"nvidia", "nvidia-nvswitch", "nouveau", "pcieport", "pci", "vfio-pci", "device"}


class LogMessage(NamedTuple):
    """One message: its text, the line it started with, and its place among the others."""

    text: str
    line: KernelLine
    number: int


class Named(NamedTuple):
    """What the log reports about PCI functions: GPUs, NVSwitches, and devices with other drivers."""

    gpus: frozenset[str]
    switches: frozenset[str]
    others: frozenset[str]


def messages(lines: Iterable[KernelLine]) -> list[LogMessage]:
    flat = [(part[:MAX_LINE], line) for line in lines for part in line.text.split("\n")]
    found: list[LogMessage] = []
    at = 0
    while at < len(flat):
        text, line = flat[at]
        parts = [text, *_more(flat, at + 1, text)]
        found.append(LogMessage(" ".join(parts)[:MAX_TEXT], line, len(found)))
        at += len(parts)
    return found


def named(log: Iterable[LogMessage]) -> Named:
    """The GPUs, the switches and the other devices that the messages name."""
    gpus: set[str | None] = set()
    switches: set[str | None] = set()
    others: set[str | None] = set()
    for message in log:
        gpus |= {bus_id(match["bus"]) for match in NAMED_GPU.finditer(message.text)}
        switches |= {bus_id(match["bus"]) for match in NAMED_SWITCH.finditer(message.text)}
        by_driver = NAMED_BY_DRIVER.finditer(message.text)
        others |= {bus_id(match["bus"]) for match in by_driver if match["driver"] not in MAY_MATTER}
    found = (gpus, switches, others - gpus - switches)
    return Named(*(frozenset(bus for bus in ids if bus) for ids in found))


def bus_id(text: str | None) -> str | None:
    """``0000:3B:00``, ``3b:00.0`` and ``00000000:3b:00.0`` as Linux writes it. None for what no card can have."""
    if text is None:
        return None
    text = text.lower()
    parts = (text if text.count(":") > 1 else f"0000:{text}").split(":")
    domain, bus, device = parts[0][-4:] if parts[0][:-4].strip("0") == "" else parts[0], parts[1], parts[2]
    device = device if "." in device else f"{device}.0"
    if (domain, bus) == ("0000", "00") and device.startswith("00"):
        return None  # the host bridge of every machine: a placeholder, never a card
    return f"{domain}:{bus}:{device}"


def _more(flat: list[tuple[str, KernelLine]], start: int, head: str) -> Iterator[str]:
    if RECORD.search(head):
        for text, _ in flat[start : start + RECORD_LINES]:
            if not RECORD.search(text) or "Hardware error from" in text:
                return
            yield text
    elif TRACE.search(head):
        for text, _ in flat[start : start + TRACE_LINES]:
            if TRACE.search(text) or "NVRM: " in text or not TRACE_PART.search(text):
                return
            yield text
    elif SENTENCE.search(head) and not _ended(head):
        for text, _ in flat[start : start + SENTENCE_LINES]:
            _, found, rest = text.partition("NVRM: ")
            if not found or OWN_SENTENCE.search(text):
                return
            yield rest.strip()
            if _ended(text):
                return


def _ended(text: str) -> bool:
    return text.rstrip().endswith((".", "!"))


XID = re.compile(r"NVRM: Xid:? ?(?:\((?P<where>[^()]{0,80})\):?)? ?(?P<code>\d{1,5})(?![\w.])(?P<text>.*)")
SXID = re.compile(r"nvidia-nvswitch\d{0,3}: SXid \((?P<where>[^()]{0,80})\): (?P<code>\d{1,6})(?!\w)(?P<text>.*)")
FABRIC_SXID = re.compile(
    rf"detected NVSwitch (?P<text>non-fatal|fatal) error (?P<code>\d{{1,6}})\b(?:.{{0,80}}pci bus id (?P<where>{BUS}))?"
)
PLACE = re.compile(BUS)
SEVERITY = re.compile(r"\b(?P<non>non-?)?fatal\b", re.IGNORECASE)
ACTION = re.compile(
    r"changed (?:from .{1,60} )?to (?:(?P<number>0x[0-9a-f]{1,8})\b ?)?\(?(?P<name>[A-Za-z][\w -]{0,40})", re.I
)
NVLINK5 = re.compile(
    r"(?P<units>[A-Z][\w/]{1,60}) +(?P<fatal>Nonfatal|Fatal) +XC\d +i\d+ +Link (?P<link>-?\d{1,3})"
    r"(?: \((?P<info>0x[0-9a-f]{1,8}) (?P<status>0x[0-9a-f]{1,8}))?",
    re.IGNORECASE,
)
CAUSED_BY = re.compile(r"caused by previous Xid (?P<code>\d{1,5})")


class Meaning(NamedTuple):
    """One kind of message: its severity, a summary, its code with values, and the steps of its row."""

    verdict: Verdict
    summary: str
    code: str
    values: dict[str, Any]
    steps: tuple[Advice, ...] = ()
    cause: str | None = None
    confidence: Confidence = "certain"
    action: Action | None = None
    owner: Owner | None = None


class Code(NamedTuple):
    """One Xid or SXid of a line. bus: as the line names it, None where it does not."""

    key: str
    bus: str | None
    meaning: Meaning
    follows: frozenset[str] = frozenset()


def xid(text: str) -> Code | None:
    match = XID.search(text)
    return of_xid(int(match["code"]), _place(match["where"]), match["text"]) if match else None


def sxid(text: str) -> Code | None:
    """The SXid of a message, as the driver of the switch or fabric manager reports it."""
    match = SXID.search(text) or FABRIC_SXID.search(text)
    return _of_sxid(int(match["code"]), _place(match["where"]), match["text"]) if match else None


def _place(where: str | None) -> str | None:
    match = PLACE.search(where) if where else None
    return bus_id(match["bus"]) if match else None


def of_xid(code: int, bus: str | None, text: str = "") -> Code:
    row = xids().get(code)
    after = frozenset({"any" if row.follows == "any" else f"xid:{row.follows}"}) if row and row.follows else frozenset()
    return Code(f"xid:{code}", bus, _xid_meaning(code, row, text), after)


def _xid_meaning(code: int, row: Xid | None, text: str) -> Meaning:
    if row is None:
        return Meaning("warn", f"Xid {code}", "kernel.xid-not-known", {"xid": code}, (), "xid", "possible")
    summary, cause = f"Xid {code}: {row.reading}", row.cause or "xid"
    meaning = _of_row(Meaning(row.verdict, summary, "kernel.xid-event", {"xid": code}, cause=cause), row)
    if row.detail == "recovery-action" and (match := ACTION.search(text)):
        action = recovery_action(match["name"].strip(), int(match["number"], 16) if match["number"] else None)
        if action is not None:
            name = match["name"].strip()
            meaning = meaning._replace(
                verdict=action.verdict,
                summary=f"Xid 154: {action.does} ({name})",
                code="kernel.recovery-action",
                values={"xid": code, "required": name},
            )
            return _of_row(meaning, action)
    if row.detail == "nvlink5" and (match := NVLINK5.search(text)):
        return _nvlink5_meaning(code, meaning, match)
    return meaning


def _nvlink5_meaning(code: int, meaning: Meaning, match: re.Match[str]) -> Meaning:
    fatal = match["fatal"].lower() == "fatal"
    link = f" on link {int(match['link'])}" if int(match["link"]) >= 0 else ""
    summary = f"Xid {code}: NVLink 5 {'fatal' if fatal else 'non-fatal'} error, {match['units']}{link}"
    down = fatal and "NETIR" in match["units"]
    meaning = meaning._replace(
        summary=summary, verdict="fail" if fatal else "warn", cause="nvlink-down" if down else meaning.cause
    )
    if match["info"] is None:
        return meaning
    info, status = int(match["info"], 16), int(match["status"], 16)
    found = (nvlink5(code, unit, info >> 20 & 0x3F, status) for unit in match["units"].split("/"))
    rule = next((rule for rule in found if rule), None)
    if rule is None:
        return meaning
    verdict: Verdict = "warn" if rule.verdict == "fail" and not fatal else rule.verdict
    return _of_row(meaning._replace(verdict=verdict), rule)


def _of_sxid(code: int, bus: str | None, text: str) -> Code:
    row, family = sxids().get(code), sxid_family(code)
    reading = row.reading if row else f"error of the {family}" if family else "error"
    severity = SEVERITY.search(text)
    verdict: Verdict = row.verdict if row else "warn"
    if severity:
        verdict = "fail" if not severity["non"] else "warn" if verdict == "fail" else verdict
    meaning = Meaning(verdict, f"SXid {code}: {reading}", "kernel.sxid-not-known", {"sxid": code}, cause=SXID_CAUSE)
    if row:
        found = "kernel.sxid-event" if row.steps else "kernel.sxid-without-action"
        meaning = _of_row(meaning._replace(code=found, cause=row.cause), row)
    return Code(f"sxid:{code}", bus, meaning)


def _of_row(meaning: Meaning, row: Catalogued) -> Meaning:
    return meaning._replace(steps=row.steps, action=row.action, owner=row.owner)


RANK = ("note", "warn", "fail")
ANY_XID = "xid"


class Event(NamedTuple):
    """One message that was understood. place: distinguishes events of one kind and subject (a PCIe port)."""

    key: str
    subject: str
    message: LogMessage
    meaning: Meaning
    follows: frozenset[str] = frozenset()
    place: str = ""
    of_gpu: bool = False


class Machine(Struct, frozen=True):
    """Which PCI functions matter, by bus id; of a pasted log only those that it names.

    cards: network cards with RDMA. above: what is below each port, as text (``GPU 0000:3b:00.0``); card_ports: those
    with nothing but such cards below. complete: there is nothing else that matters.
    """

    gpus: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    cards: frozenset[str] = frozenset()
    card_ports: frozenset[str] = frozenset()
    above: dict[str, tuple[str, ...]] = {}
    complete: bool = False


class Read(NamedTuple):
    """What a log reports. known: keys of all messages that were recognized; strangers: those that were not."""

    events: list[Event]
    known: frozenset[str]
    strangers: list[LogMessage]


def events(log: list[LogMessage], machine: Machine) -> Read:
    """Return every recognized message, in order, without those that a later line revokes."""
    read = [(message, *_understood(message, machine)) for message in log]
    strangers = [message for message, key, _ in read if key is None]
    found = [event for _, _, event in read if event is not None]
    known = {(event.key, event.subject) for event in found}
    for event in list(found):
        cause = CAUSED_BY.search(event.message.text) if event.key == "xid:45" else None
        if cause and (f"xid:{cause['code']}", event.subject) not in known:
            code = of_xid(int(cause["code"]), None)
            found.append(Event(code.key, event.subject, event.message, code.meaning, code.follows, of_gpu=True))
    present = {event.key for event in found}
    cleared = {row.key: _clearing(row.cleared_by, log) for row in classes() if row.cleared_by and row.key in present}
    keys = {key for _, key, _ in read if key is not None}
    keys |= {ANY_XID} if any(key.startswith(ANY_XID) for key in keys) else set()
    kept = [event for event in found if not _cleared(event, cleared.get(event.key, {}))]
    return Read(kept, frozenset(keys), strangers)


def _understood(message: LogMessage, machine: Machine) -> tuple[str | None, Event | None]:
    if "Xid" in message.text or "NVSwitch" in message.text:
        if code := xid(message.text):
            return code.key, _coded(code, "gpu", message)
        if code := sxid(message.text):
            return code.key, _coded(code, "link", message)
    if not _any_word().search(message.text):
        return None, None
    for row in classes():
        if any(word in message.text for word in row.words):
            for pattern in row.patterns:
                if match := _pattern(pattern).search(message.text):
                    if row.verdict == "note":
                        return row.key, None
                    bus = _bus(match.groupdict().get("bus"), message if row.about == "port" else None, machine)
                    return row.key, _message(row, bus, message, machine)
    return None, None


def _bus(text: str | None, of_port: LogMessage | None, machine: Machine) -> str | None:
    """The first port of some boards has the number of the host bridge of others, which writes no line about a link."""
    own = text and (text.lower() in machine.above or (of_port and f" {text}: " in of_port.text))
    return text.lower() if text and own else bus_id(text)


def _coded(code: Code, kind: str, message: LogMessage) -> Event:
    subject = f"{kind}:{code.bus}" if code.bus else "host"
    return Event(code.key, subject, message, code.meaning, code.follows, of_gpu=kind == "gpu")


def _message(row: KernelMessage, bus: str | None, message: LogMessage, machine: Machine) -> Event | None:
    values = {"message": row.key, "meaning": row.why}
    meaning = Meaning(row.verdict, row.says, "kernel.known-message", values, row.steps, row.cause, row.confidence)
    subject, place, after = "host", "", follows(row.key)
    if row.about == "gpu" and bus:
        subject = f"gpu:{bus}"
    elif row.about == "switch" and bus:
        subject = f"link:{bus}"
    elif row.about == "nic" and bus:
        subject = f"nic:{bus}"
    elif row.about in ("device", "port"):
        # By the driver of another kind of device: ``mlx5_core 0000:5c:00.0: PCIe Bus Error``.
        drivers = {m["driver"] for m in NAMED_BY_DRIVER.finditer(message.text) if bus_id(m["bus"]) == bus}
        # In a log that names its GPUs, a function that is neither a GPU nor a port is another device.
        named = bool(machine.gpus | machine.switches)
        another = named and (row.about == "device" or "pcieport " not in message.text)
        of_card = bool(drivers & NETWORK) or (row.about == "port" and bus in machine.cards)
        if bus is None or (drivers - MAY_MATTER and not of_card):
            return None
        if of_card:
            subject = f"nic:{bus}"
            meaning = meaning._replace(verdict="warn")
        elif bus in machine.gpus:
            subject = f"gpu:{bus}"
        elif bus in machine.switches:
            subject = f"link:{bus}"
        elif bus in machine.above:
            place = bus
            meaning = meaning._replace(summary=f"{row.says} at PCIe port {bus}, above {', '.join(machine.above[bus])}")
            if bus in machine.card_ports:
                after, cause = frozenset(), "pcie-errors" if row.cause == "gpu-lost" else row.cause
                meaning = meaning._replace(verdict="warn", cause=cause)
        elif machine.complete or bus in machine.others or another:
            return None
        else:
            place = bus
            meaning = meaning._replace(
                verdict="warn",
                summary=f"{row.says} at {bus}",
                code="kernel.unknown-device",
                values={**values, "device": bus},
                confidence="possible",
            )
    return Event(row.key, subject, message, meaning, after, place, row.about == "gpu" or subject.startswith("gpu:"))


def _clearing(pattern: str, log: list[LogMessage]) -> dict[str | None, int]:
    compiled = _pattern(pattern)
    found = ((message.number, compiled.search(message.text)) for message in log)
    return {bus_id(match.groupdict().get("bus")): number for number, match in found if match}


def _cleared(event: Event, clearing: dict[str | None, int]) -> bool:
    places = (None, event.place, event.subject.partition(":")[2])
    return any(clearing.get(place, -1) > event.message.number for place in places)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled when a line has a word of its class: all of them cost more than the rest of the check."""
    first, *rest = text.split("{bus}")
    return re.compile(
        first + "".join((BUS if n == 0 else BUS.replace("?P<bus>", "?:")) + r for n, r in enumerate(rest)), re.I
    )


@cache
def _any_word() -> re.Pattern[str]:
    """A line without any of these words belongs to no class."""
    return re.compile("|".join(sorted({re.escape(word) for row in classes() for word in row.words})))


# Links of network cards that went down and up, as their drivers log it (Ethernet only).
CARRIER = re.compile(
    r"\b[a-z]\w{1,20} (?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])(?: (?P<name>\S{1,40}))?: "
    r"(?:NIC )?Link (?:is )?(?P<state>down|up)\b",
    re.IGNORECASE,
)


class Outage(NamedTuple):
    """A link that went down and up again; seconds since boot."""

    bus: str
    down: float
    up: float


def outages(lines: Iterable[KernelLine], *, after: float) -> list[Outage]:
    """Return how often each link went down and up again, in order. after: seconds since boot."""
    down: dict[str, float] = {}
    found: list[Outage] = []
    for line in lines:
        event = CARRIER.search(line.text)
        if event is None or line.seconds is None:
            continue
        bus = event["bus"].lower()[-12:]
        if event["state"].lower() == "down":
            down.setdefault(bus, line.seconds)
        elif down.get(bus, 0.0) > after:
            found.append(Outage(bus, down.pop(bus), line.seconds))
        else:
            down.pop(bus, None)
    return found


def without_restored(log: Iterable[LogMessage], every: Iterable[LogMessage]) -> Iterator[LogMessage]:
    """Return the messages without links that went down and up again, which nic-flaps counts."""
    last_up: dict[str, int] = {}
    for message in every:
        event = CARRIER.search(message.text)
        if event and event["state"].lower() == "up":
            last_up[event["bus"].lower()] = message.number
    for message in log:
        event = CARRIER.search(message.text)
        if not event or message.number > last_up.get(event["bus"].lower(), -1):
            yield message
