"""A kernel log as people paste it: dmesg, journalctl, syslog, /dev/kmsg, or the bare messages.

Every form gives the same messages. What stands before a message is taken off piece by piece: quotes, priorities,
times, host and program. Lines that the kernel or syslog joined (``#012``, ``\\x0a``) are taken apart again.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import MAX_BYTES, decode, plain, quoted
from gpucheck.model.readings import KernelLine, KernelLog

COMMAND = "gpucheck diagnose --kernel-log FILE"
MAX_LINE = 16_384
MOST_LINES = 500_000
# Pieces before a message. Each matches at the start only, and none can match nothing.
PIECES = tuple(
    re.compile(piece)
    for piece in (
        r"(?:[>|`]+ ?)+",
        r"<\d{1,3}>(?:1 )?",
        r"\d{1,4},\d{1,12},(?P<micro>\d{1,18}),[^;\s]{0,100};",
        r"(?P<level>[a-z0-9]{3,8} *:(?:emerg|alert|crit|err|warn|notice|info|debug) *): ?",
        r"\[ *(?P<seconds>\d{1,10}\.\d{1,9})\] ?",
        r"\[ *[TC]\d{1,10}\] ?",
        r"\[ *[+]\d{1,10}\.\d{1,9}\] ?",
        r"\[(?P<ctime>(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} {0,2}\d{1,2}(?: \d{4})? \d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: \d{4})?)\] ?",
        r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?) ?",
        r"(?P<full>[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [A-Z]{2,5}) ",
        r"(?P<syslog>[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) ",
        r"(?P<unix>\d{9,10}\.\d{6}) ",
        r"(?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?) ",
        r"(?P<kernel>(?:[\w.-]{1,255} )?kernel(?: - - -|\[\d{1,7}\]:|:)) ?",
        r"[\w.-]{1,255} (?=(?:systemd|nv|dcgm)[\w.@-]{0,60}(?:\[\d{1,10}\])?: )",
    )
)
MOST_PIECES = 9
CLOCKS = ("ctime", "iso", "full", "syslog", "unix", "time")
OF_THE_KERNEL = ("micro", "level", "seconds", "kernel")
WEEKDAY = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ")
# Fields of journalctl: -o export and -o verbose (NAME=value), -o json-pretty ("NAME" : "value",).
FIELD = re.compile(r"[ \t]{0,12}(?P<name>_{0,2}[A-Z][A-Z0-9_]{1,63})=(?P<value>.*)")
PRETTY = re.compile(r'[ \t]{0,12}"(?P<name>_{0,2}[A-Z][A-Z0-9_]{1,63})" : (?P<value>.*?),?')
SURE = re.compile(
    r"\bNVRM: |nvidia-nvswitch\d*: |\bSXid \(|\bpcieport [0-9a-f]{4}:|\bDMAR: |\bAMD-Vi: |arm-smmu-v3 |\[Hardware Error\]: "
    r"|\bEDAC MC\d|\b(?:nvidia|nouveau|pci) [0-9a-f]{4}:[0-9a-f]{2}:|\bnvidia(?:_\w+)?: (?:module|loading|Unknown|disagrees|version"
    r"|probe of|Loading)|nv-fabricmanager\[|nvidia-(?:fabricmanager|persistenced)(?:\.service|\[\d+\])?: |blocked for more than \d"
    r"|Loading of (?:unsigned )?module|could not insert '?nvidia|insert module 'nvidia|Module nvidia not found"
)


class _Line(NamedTuple):
    """One line without what stood before it. own: something stood there, so this starts a record."""

    text: str
    seconds: float | None
    clock: str | None
    own: bool
    kernel: bool


def recognise(text: str) -> bool:
    """A line with a time of the kernel's log or a message that only a kernel log or a service of the driver has."""
    return any(found.kernel for found in _records(text)) or SURE.search(text) is not None


def parse(text: str) -> KernelLog:
    """The messages, oldest first. Raises ImportProblem where nothing is recognised, and nothing else."""
    lines, sure = [], SURE.search(text) is not None
    for found in _records(text):
        sure = sure or found.kernel
        lines += [
            KernelLine(text=part, seconds=found.seconds, clock=found.clock)
            for part in _parts(found.text)
            if part.strip()
        ]
        if len(lines) > MOST_LINES:
            break
    if not sure or not lines:
        first = next((line for line in text.splitlines() if line.strip()), "")
        raise ImportProblem(
            "no kernel log in the input",
            where="whole input",
            why=f"it starts with {quoted(first)}, and no line has the form of dmesg, journalctl -k, syslog or /dev/kmsg",
            do="Save the log and give that: sudo dmesg > kernel.txt, or journalctl -k > kernel.txt",
        )
    return KernelLog(lines=tuple(lines), source="pasted log")


def read(data: bytes) -> KernelLog:
    """The log in bytes of unknown origin. Logs that a crash cut off hold NUL bytes, which are dropped."""
    if len(data) > MAX_BYTES:
        raise ImportProblem(
            "input is too large",
            where=f"more than {MAX_BYTES >> 20} MiB",
            why="a kernel log of that size is a loop of one message",
            do="Give a part of it: grep -E 'NVRM|nvidia|pcieport|AER' FILE > kernel.txt",
        )
    return parse(plain(decode(data.replace(b"\0", b""))))


def _records(text: str) -> Iterator[_Line]:
    """Every line of the log; a continuation has the times of the line it belongs to."""
    before = _Line("", None, None, own=False, kernel=False)
    fields = FIELD.match(text.lstrip()) is not None or "\nMESSAGE=" in text or '\n\t"MESSAGE" : ' in text
    in_message = False
    clock: str | None = None
    for raw in text.split("\n"):
        line = raw[:MAX_LINE].lstrip("\x1e").rstrip()
        stripped = line.lstrip()
        if stripped.startswith("{") and '"MESSAGE"' in stripped:
            yield from _json(stripped)
            continue
        if fields and (match := FIELD.fullmatch(line) or PRETTY.fullmatch(line)):
            in_message = False
            if "REALTIME" in match["name"]:
                clock = match["value"].strip('"')
            elif match["name"] == "MESSAGE":
                yield _Line(_unquoted(match["value"]), None, clock, own=True, kernel=True)
            continue
        if fields and stripped == "MESSAGE":
            in_message = True  # journalctl -o export writes a message of several lines below its name
            continue
        found = _Line(stripped, None, clock, own=True, kernel=True) if in_message else _stripped(line)
        if not found.own and before.own and line[:1].isspace():
            if re.match(r" [A-Z_]+=", line):
                continue  # the dictionary of a /dev/kmsg record
            found = found._replace(seconds=before.seconds, clock=before.clock)
        else:
            before = found
        yield found


def _stripped(line: str) -> _Line:
    """Take off what stands before the message."""
    text, said = line.lstrip(), {}
    for _ in range(MOST_PIECES):
        match = next((found for piece in PIECES if (found := piece.match(text))), None)
        if match is None:
            break
        said |= {name: value for name, value in match.groupdict().items() if value}
        said["any"] = "yes"
        text = text[match.end() :].lstrip() if match.end() else text
    seconds = float(said["seconds"]) if "seconds" in said else int(said["micro"]) / 1e6 if "micro" in said else None
    clock = next((said[name] for name in CLOCKS if name in said), None)
    kernel = any(name in said for name in OF_THE_KERNEL) or WEEKDAY.match(said.get("ctime", "")) is not None
    return _Line(text, seconds, clock, own="any" in said, kernel=kernel)


def _json(line: str) -> Iterator[_Line]:
    """One record of journalctl -o json; MESSAGE is a list of bytes where it is not UTF-8."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return
    message = record.get("MESSAGE") if isinstance(record, dict) else None
    if isinstance(message, list):
        message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode(errors="replace")
    if not isinstance(message, str):
        return
    micro = str(record.get("_SOURCE_MONOTONIC_TIMESTAMP", ""))
    seconds = int(micro) / 1e6 if micro.isascii() and micro.isdigit() and len(micro) < 19 else None
    clock = record.get("__REALTIME_TIMESTAMP")
    yield _Line(message, seconds, clock if isinstance(clock, str) else None, own=True, kernel=True)


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return value.strip('"')
    return value


def _parts(text: str) -> list[str]:
    """Lines that syslog, /dev/kmsg or a JSON string joined."""
    return re.split(r"\n|#012|\\x0a|\\n", text)


KIND = Kind(
    name="kernel-log",
    title="a kernel log (dmesg, journalctl -k, syslog)",
    recognise=recognise,
    parse=parse,
    holds="kernel messages",
    command=COMMAND,
    loose=True,
)
