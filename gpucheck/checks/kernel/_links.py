"""Links of network cards that went down and up again, as their drivers log it (Ethernet only)."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.checks.kernel._events import LogMessage
from gpucheck.model import KernelLine

EVENT = re.compile(
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
        event = EVENT.search(line.text)
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
        event = EVENT.search(message.text)
        if event and event["state"].lower() == "up":
            last_up[event["bus"].lower()] = message.number
    for message in log:
        event = EVENT.search(message.text)
        if not event or message.number > last_up.get(event["bus"].lower(), -1):
            yield message
