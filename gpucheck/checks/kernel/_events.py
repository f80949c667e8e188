"""What the messages of a kernel log report: Xids, SXids, and the classes of messages of the knowledge room."""

import re
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from gpucheck.checks.kernel._text import BUS, LogMessage, bus_id, of_another_driver
from gpucheck.checks.kernel._xids import CAUSED_BY, Code, Meaning, of_xid, sxid, xid
from gpucheck.knowledge.kernel_messages import KernelMessage, follows
from gpucheck.knowledge.kernel_messages import messages as classes

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

    above: what is below each port (``GPU 0000:3b:00.0``). complete: there is nothing else that matters.
    """

    gpus: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
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
    """The key of a message that is recognized, and what it reports where that concerns this machine's GPUs."""
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
                    return row.key, _message(row, bus_id(match.groupdict().get("bus")), message, machine)
    return None, None


def _coded(code: Code, kind: str, message: LogMessage) -> Event:
    subject = f"{kind}:{code.bus}" if code.bus else "host"
    return Event(code.key, subject, message, code.meaning, code.follows, of_gpu=kind == "gpu")


def _message(row: KernelMessage, bus: str | None, message: LogMessage, machine: Machine) -> Event | None:
    values = {"message": row.key, "meaning": row.why}
    meaning = Meaning(row.verdict, row.says, "kernel.known-message", values, row.steps, row.cause, row.confidence)
    subject, place = "host", ""
    if row.about == "gpu" and bus:
        subject = f"gpu:{bus}"
    elif row.about == "switch" and bus:
        subject = f"link:{bus}"
    elif row.about == "nic" and bus:
        subject = f"nic:{bus}"
    elif row.about in ("device", "port"):
        if bus is None or of_another_driver(message.text, bus):
            return None
        if bus in machine.gpus:
            subject = f"gpu:{bus}"
        elif bus in machine.switches:
            subject = f"link:{bus}"
        elif bus in machine.above:
            place = bus
            meaning = meaning._replace(summary=f"{row.says} at PCIe port {bus}, above {', '.join(machine.above[bus])}")
        elif machine.complete or bus in machine.others or _another_device(row, message, machine):
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
    after = follows(row.key)
    return Event(row.key, subject, message, meaning, after, place, row.about == "gpu" or subject.startswith("gpu:"))


def _another_device(row: KernelMessage, message: LogMessage, machine: Machine) -> bool:
    """In a log that names its GPUs, a function that is neither a GPU nor a port is another device."""
    return bool(machine.gpus | machine.switches) and (row.about == "device" or "pcieport " not in message.text)


def _clearing(pattern: str, log: list[LogMessage]) -> dict[str | None, int]:
    """The last message that takes a class back, by the bus id that it names."""
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
