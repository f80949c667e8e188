"""What the messages of a kernel log tell of: Xids, SXids, and the classes of messages of the knowledge room."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gpucheck.checks._kernel_text import BUS, Named, Said, bus_id, of_another_driver
from gpucheck.knowledge.kernel_messages import Confidence, Message, Verdict, follows
from gpucheck.knowledge.kernel_messages import messages as classes
from gpucheck.knowledge.xid import Sxid, Xid, nvlink5, recovery_action, sxid_family, sxids, xids

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
RANK = ("note", "warn", "fail")


class Meaning(NamedTuple):
    """What one kind of message says, how bad it is, and what to do."""

    verdict: Verdict
    says: str
    why: str
    fix: str
    cause: str | None = None
    confidence: Confidence = "certain"


class Event(NamedTuple):
    """One message that was understood. place: tells events of one kind and subject apart (a PCIe port)."""

    key: str
    subject: str
    said: Said
    meaning: Meaning
    follows: frozenset[str] = frozenset()
    place: str = ""
    of_gpu: bool = False


class Machine(NamedTuple):
    """Which PCI functions matter. above: GPUs by the ports above them. complete: there are no other GPUs than these."""

    named: Named
    gpus: frozenset[str]
    above: dict[str, tuple[str, ...]]
    complete: bool


def events(said: list[Said], machine: Machine) -> list[Event]:
    """Every message that was understood, in order; those that a later line takes back are left out."""
    found = [event for message in said for event in _understood(message, machine)]
    known = {(event.key, event.subject) for event in found}
    for event in list(found):
        cause = CAUSED_BY.search(event.said.text) if event.key == "xid:45" else None
        if cause and (f"xid:{cause['code']}", event.subject) not in known:
            found.append(_xid(int(cause["code"]), event.subject, event.said, ""))
    present = {event.key for event in found}
    cleared = {row.key: _clearing(row.cleared_by, said) for row in classes() if row.cleared_by and row.key in present}
    return [event for event in found if not _cleared(event, cleared.get(event.key, {}))]


def _understood(said: Said, machine: Machine) -> Iterator[Event]:
    if "Xid" in said.text or "NVSwitch" in said.text:
        if match := XID.search(said.text):
            bus = _place(match["where"])
            yield _xid(int(match["code"]), f"gpu:{bus}" if bus else "host", said, match["text"])
            return
        if match := SXID.search(said.text) or FABRIC_SXID.search(said.text):
            bus = _place(match["where"])
            yield _sxid(int(match["code"]), f"link:{bus}" if bus else "host", said, match["text"])
            return
    if not _any_word().search(said.text):
        return
    for row, patterns in _compiled():
        if any(word in said.text for word in row.words):
            for pattern in patterns:
                if match := pattern.search(said.text):
                    event = _message(row, bus_id(match.groupdict().get("bus")), said, machine)
                    if event is not None and row.verdict != "note":
                        yield event
                    return


def _place(where: str | None) -> str | None:
    match = PLACE.search(where) if where else None
    return bus_id(match["bus"]) if match else None


def _xid(code: int, subject: str, said: Said, text: str) -> Event:
    row = xids().get(code)
    after = frozenset({"any" if row.follows == "any" else f"xid:{row.follows}"}) if row and row.follows else frozenset()
    return Event(f"xid:{code}", subject, said, _xid_meaning(code, row, text), after, of_gpu=True)


def _xid_meaning(code: int, row: Xid | None, text: str) -> Meaning:
    if row is None:
        why = "this Xid is not in the table, so what it means is not known here"
        fix = "look it up in NVIDIA's Xid catalogue, and follow its action"
        return Meaning("warn", f"Xid {code}", why, fix, "xid", "possible")
    why = f"the driver reported this error of the GPU (gpucheck explain xid:{code})"
    meaning = Meaning(
        row.verdict, f"Xid {code}: {row.reading}", why, _steps(row.immediate, row.later), row.cause or "xid"
    )
    if row.detail == "recovery-action" and (match := ACTION.search(text)):
        action = recovery_action(match["name"].strip(), int(match["number"], 16) if match["number"] else None)
        if action is not None:
            return meaning._replace(
                verdict=action.verdict,
                says=f"Xid 154: {action.does} ({match['name'].strip()})",
                why="after an earlier error the driver says what the GPU needs before it can be trusted again",
                fix=action.immediate,
            )
    if row.detail == "nvlink5" and (match := NVLINK5.search(text)):
        return _nvlink5_meaning(code, meaning, match)
    return meaning


def _nvlink5_meaning(code: int, meaning: Meaning, match: re.Match[str]) -> Meaning:
    fatal = match["fatal"].lower() == "fatal"
    link = f" on link {int(match['link'])}" if int(match["link"]) >= 0 else ""
    says = f"Xid {code}: NVLink 5 {'fatal' if fatal else 'non-fatal'} error, {match['units']}{link}"
    down = fatal and "NETIR" in match["units"]
    meaning = meaning._replace(
        says=says, verdict="fail" if fatal else "warn", cause="nvlink-down" if down else meaning.cause
    )
    if match["info"] is None:
        return meaning
    info, status = int(match["info"], 16), int(match["status"], 16)
    found = (nvlink5(code, unit, info >> 20 & 0x3F, status) for unit in match["units"].split("/"))
    rule = next((rule for rule in found if rule), None)
    if rule is None:
        return meaning
    verdict: Verdict = "warn" if rule.verdict == "fail" and not fatal else rule.verdict
    return meaning._replace(verdict=verdict, fix=_steps(rule.immediate, rule.later))


def _sxid(code: int, subject: str, said: Said, text: str) -> Event:
    row, family = sxids().get(code), sxid_family(code)
    reading = row.reading if row else f"error of the {family}" if family else "error"
    severity = SEVERITY.search(text)
    verdict: Verdict = row.verdict if row else "warn"
    if severity:
        verdict = "fail" if not severity["non"] else "warn" if verdict == "fail" else verdict
    fix = "reset all GPUs of the board together, restart fabric manager; contact support if it returns"
    row = row or Sxid(sxid=(code,), reading=reading, verdict=verdict, immediate=fix)
    why = f"an NVSwitch reported an error on its links or inside (gpucheck explain sxid:{code})"
    meaning = Meaning(verdict, f"SXid {code}: {reading}", why, _steps(row.immediate, row.later), row.cause)
    return Event(f"sxid:{code}", subject, said, meaning)


def _message(row: Message, bus: str | None, said: Said, machine: Machine) -> Event | None:
    meaning = Meaning(row.verdict, row.says, row.why, row.fix, row.cause, row.confidence)
    subject, place = "host", ""
    if row.about == "gpu" and bus:
        subject = f"gpu:{bus}"
    elif row.about == "switch" and bus:
        subject = f"link:{bus}"
    elif row.about in ("device", "port"):
        if bus is None or of_another_driver(said.text, bus):
            return None
        if bus in machine.gpus:
            subject = f"gpu:{bus}"
        elif bus in machine.above:
            place = bus
            gpus = ", ".join(machine.above[bus])
            meaning = meaning._replace(says=f"{row.says} at PCIe port {bus}, above GPU {gpus}")
        elif machine.complete or bus in machine.named.others or _another_device(row, said, machine):
            return None
        else:
            place = bus
            meaning = meaning._replace(
                verdict="warn",
                says=f"{row.says} at {bus}",
                why=f"{row.why}; the log does not say whether a GPU is behind {bus}",
                fix=f"lspci -tvnn shows what is behind {bus}; if it is a GPU: {row.fix}",
                confidence="possible",
            )
    after = follows(row.key)
    return Event(row.key, subject, said, meaning, after, place, row.about == "gpu" or subject.startswith("gpu:"))


def _another_device(row: Message, said: Said, machine: Machine) -> bool:
    """In a log that names its GPUs, a function that is none of them and no port is another device."""
    return bool(machine.gpus) and (row.about == "device" or "pcieport " not in said.text)


def _clearing(pattern: str, said: list[Said]) -> dict[str | None, int]:
    """The last message that takes a class back, by the bus id that it names."""
    compiled = _pattern(pattern)
    found = ((message.number, compiled.search(message.text)) for message in said)
    return {bus_id(match.groupdict().get("bus")): number for number, match in found if match}


def _cleared(event: Event, clearing: dict[str | None, int]) -> bool:
    places = (None, event.place, event.subject.partition(":")[2])
    return any(clearing.get(place, -1) > event.said.number for place in places)


def _steps(immediate: str, later: str) -> str:
    if immediate == "none":
        return later or "nothing to do"
    return f"{immediate}; then {later}" if later else immediate


@cache
def _pattern(text: str) -> re.Pattern[str]:
    first, *rest = text.split("{bus}")
    return re.compile(
        first + "".join((BUS if n == 0 else BUS.replace("?P<bus>", "?:")) + r for n, r in enumerate(rest)), re.I
    )


@cache
def _compiled() -> tuple[tuple[Message, tuple[re.Pattern[str], ...]], ...]:
    return tuple((row, tuple(map(_pattern, row.patterns))) for row in classes())


@cache
def _any_word() -> re.Pattern[str]:
    """One look that tells most lines apart from all classes."""
    return re.compile("|".join(sorted({re.escape(word) for row in classes() for word in row.words})))
