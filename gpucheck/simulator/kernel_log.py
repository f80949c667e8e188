"""dmesg and journalctl of a simulated machine: its kernel log, in the forms that their usual options ask for.

They read $GPUCHECK_SIMULATOR/root/dev/kmsg. The journal has nothing but the kernel's lines.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
# Options with a value, which follows in the same word or in the next.
TAKES = {
    "dmesg": {"-l", "--level", "-f", "--facility", "-s", "-n", "--time-format", "--since", "--until", "-F", "--file"},
    "journalctl": {
        *("-n", "--lines", "-o", "--output", "-u", "--unit", "-p", "--priority", "-g", "--grep", "-b", "--boot"),
        *("-S", "--since", "-U", "--until", "-t", "--identifier", "-D", "--directory"),
    },
}
LONG = {"-n": "--lines", "-o": "--output", "-u": "--unit", "-p": "--priority", "-g": "--grep", "-l": "--level"}
LONG |= {"-T": "--ctime", "-t": "--notime", "-x": "--decode", "-J": "--json"}
FOLLOWS = {"-w", "--follow", "-W", "--follow-new", "-f"}


class Line(NamedTuple):
    """A record of the kernel log. seconds: since the machine started."""

    priority: int
    seconds: float
    text: str


def read() -> list[Line]:
    """The kernel log of the machine that this process is on. Raises OSError."""
    path = Path(os.environ["GPUCHECK_SIMULATOR"]) / "root" / "dev" / "kmsg"
    lines = []
    for record in path.read_text(encoding="utf-8", errors="replace").splitlines():
        head, semicolon, text = record.partition(";")
        fields = head.split(",")
        if semicolon and len(fields) >= 3 and fields[0].isdecimal() and fields[2].isdecimal():
            lines.append(Line(int(fields[0]) & 7, int(fields[2]) / 1e6, text))
    return lines


def options(name: str, arguments: list[str]) -> dict[str, str]:
    """Every option by its long name; what takes no value has an empty one. Words that are no option are dropped."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if not word.startswith("-") or word == "-":
            continue
        short = word[:2]
        if not word.startswith("--") and len(word) > 2:
            if short not in TAKES[name]:  # several in one word, as in -Tx
                rest[:0] = [f"-{letter}" for letter in word[1:]]
                continue
            word, equals, value = short, "=", word[2:]
        if word in TAKES[name] and not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[word if name == "journalctl" and word in ("-t", "-x", "-l") else LONG.get(word, word)] = value
    return found


def dmesg(lines: list[Line], chosen: dict[str, str], boot: float) -> Iterator[str]:
    """The output of dmesg. boot: seconds since 1970 at which the machine started."""
    levels = chosen.get("--level", "")
    wanted = {LEVELS.index(one) for one in levels.split(",") if one in LEVELS} if levels else set(range(8))
    lines = [line for line in lines if line.priority in wanted]
    if "--json" in chosen:
        yield json.dumps({"dmesg": [{"pri": n.priority, "time": n.seconds, "msg": n.text} for n in lines]}, indent=3)
        return
    style = chosen.get("--time-format", "")
    for line in lines:
        mark = f"kern  :{LEVELS[line.priority]:<6}: " if "--decode" in chosen else ""
        if "--notime" in chosen or style == "notime":
            when = ""
        elif "--ctime" in chosen or style == "ctime":
            when = f"[{time.ctime(boot + line.seconds)}] "
        elif style == "iso":
            when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(boot + line.seconds))
            when += f",{int(line.seconds % 1 * 1e6):06d}{time.strftime('%z')} "
        else:
            when = f"[{line.seconds:12.6f}] "
        yield f"{mark}{when}{line.text}"


def journal(lines: list[Line], chosen: dict[str, str], boot: float) -> Iterator[str]:
    """The output of journalctl. No line is of a unit."""
    if "--unit" in chosen or "--user" in chosen or chosen.get("-t", "kernel") != "kernel":
        lines = []
    highest = chosen.get("--priority", "").rpartition("..")[2]
    if highest:
        most = LEVELS.index(highest) if highest in LEVELS else int(highest) if highest.isdecimal() else 7
        lines = [line for line in lines if line.priority <= most]
    if "--grep" in chosen:
        lines = [line for line in lines if re.search(chosen["--grep"], line.text)]
    if chosen.get("--lines", "").isdecimal():
        lines = lines[-int(chosen["--lines"]) :] if int(chosen["--lines"]) else []
    style = chosen.get("--output", "short")
    if not lines and style != "json":
        yield "-- No entries --"
    host = os.uname().nodename
    for line in lines:
        now = boot + line.seconds
        if style == "json":
            fields = {"PRIORITY": str(line.priority), "MESSAGE": line.text, "SYSLOG_IDENTIFIER": "kernel"}
            yield json.dumps(fields | {"_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": str(int(now * 1e6))})
        elif style == "cat":
            yield line.text
        else:
            form = "%Y-%m-%dT%H:%M:%S%z" if style.startswith("short-iso") else "%b %d %H:%M:%S"
            yield f"{time.strftime(form, time.localtime(now))} {host} kernel: {line.text}"


def main(name: str, arguments: list[str]) -> int:
    """Be dmesg or journalctl; return the exit status."""
    chosen = options(name, arguments)
    lines = read()
    boot = time.time() - max((line.seconds for line in lines), default=0.0)
    for text in (dmesg if name == "dmesg" else journal)(lines, chosen, boot):
        sys.stdout.write(f"{text}\n")
    sys.stderr.write(f"{name}: SIMULATED by gpucheck\n")
    sys.stdout.flush()
    while FOLLOWS & chosen.keys():  # nothing is ever added
        time.sleep(3600)
    return 0
