"""Records of journalctl with all their fields: -o json, json-pretty, export and verbose. Only the message is kept."""

import json
import re
from typing import Any, NamedTuple

FIELD = re.compile(r"[ \t]{0,12}(?P<name>_{0,2}[A-Z][A-Z0-9_]{1,63})=(?P<value>.*)")
PRETTY = re.compile(r'[ \t]{0,12}"(?P<name>_{0,2}[A-Z][A-Z0-9_]{1,63})" : (?P<value>.*?),?')
FIELDS = re.compile(r'(?: {4}|\t)?(?:MESSAGE(?:=|$)|_TRANSPORT=|__CURSOR=|"MESSAGE" : )')
VERBOSE_HEAD = re.compile(r".{0,60}\[s=[0-9a-f]")


class Message(NamedTuple):
    """A message and its times. clock: microseconds since 1970, as the journal has it."""

    text: str
    seconds: float | None = None
    clock: str | None = None


class Fields:
    """Reads the fields of a record line by line."""

    def __init__(self) -> None:
        self.clock: str | None = None
        self.in_message = False

    def take(self, line: str) -> Message | None:
        """The message if the line holds one; an empty one for any other line of a record; None for other lines."""
        match = FIELD.fullmatch(line) or PRETTY.fullmatch(line)
        if match is None and self.in_message:
            return Message(line.lstrip(), clock=self.clock)
        if match is None:
            # journalctl -o export writes a message of several lines below its name.
            self.in_message = line.lstrip() == "MESSAGE"
            return Message("") if self.in_message or VERBOSE_HEAD.match(line) else None
        self.in_message = False
        if "REALTIME" in match["name"]:
            self.clock = match["value"].strip('"')
        return Message(_unquoted(match["value"]) if match["name"] == "MESSAGE" else "", clock=self.clock)


def record(line: str) -> Message | None:
    """Return one record of journalctl -o json, json-sse or json-seq; None for any other line."""
    line = line.lstrip().removeprefix("data: ")
    if not line.startswith("{") or '"MESSAGE"' not in line:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    micro = str(found.get("_SOURCE_MONOTONIC_TIMESTAMP", ""))
    seconds = int(micro) / 1e6 if micro.isascii() and micro.isdigit() and len(micro) < 19 else None
    clock = found.get("__REALTIME_TIMESTAMP")
    return Message(_text(found.get("MESSAGE")), seconds, clock if isinstance(clock, str) else None)


def _text(message: Any) -> str:
    """A message that is not UTF-8 is a list of its bytes; one that is too long is null."""
    if isinstance(message, list):
        return bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode(errors="replace")
    return message if isinstance(message, str) else ""


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value.strip('"')
