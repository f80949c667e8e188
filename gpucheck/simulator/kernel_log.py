"""dmesg and journalctl of a simulated machine: its kernel log, in the forms that their usual options ask for.

They read $GPUCHECK_SIMULATOR/root/dev/kmsg. The journal has nothing but the kernel's lines.
"""

import json
import os
import re
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
# Flags, which may be joined in one word, and options with a value. All others are ignored.
FLAGS = {"dmesg": "HTxkuw", "journalctl": "aefkmqrx"}
VALUES = {
    "dmesg": (("-l", "--level"),),
    "journalctl": (
        *(("-n", "--lines"), ("-o", "--output"), ("-u", "--unit"), ("-t", "--identifier"), ("-p", "--priority")),
        *(("-g", "--grep"), ("-b", "--boot")),
    ),
}
LONG = {"T": "--ctime", "x": "--decode", "w": "--follow", "f": "--follow"}


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


def options(name: str, words: list[str]) -> Namespace:
    """The options of dmesg or journalctl by their long names."""
    parser = ArgumentParser(prog=name, add_help=False, allow_abbrev=False)
    for letter in FLAGS[name]:
        parser.add_argument(f"-{letter}", *([LONG[letter]] if letter in LONG else []), action="store_true")
    for names in VALUES[name]:
        parser.add_argument(*names, nargs="?", default="")
    return parser.parse_known_args(words)[0]


def dmesg(lines: list[Line], chosen: Namespace, boot: float) -> Iterator[str]:
    """The output of dmesg. boot: seconds since 1970 at which the machine started."""
    wanted = [LEVELS.index(one) for one in (chosen.level or "").split(",") if one in LEVELS]
    for line in lines:
        if wanted and line.priority not in wanted:
            continue
        mark = f"kern  :{LEVELS[line.priority]:<6}: " if chosen.decode else ""
        when = time.ctime(boot + line.seconds) if chosen.ctime else f"{line.seconds:12.6f}"
        yield f"{mark}[{when}] {line.text}"


def journal(lines: list[Line], chosen: Namespace, boot: float) -> Iterator[str]:
    """The output of journalctl. No line is of a unit."""
    if chosen.unit or (chosen.identifier or "kernel") != "kernel":
        lines = []
    highest = (chosen.priority or "").rpartition("..")[2]
    if highest:
        most = LEVELS.index(highest) if highest in LEVELS else int(highest) if highest.isdecimal() else 7
        lines = [line for line in lines if line.priority <= most]
    if chosen.grep:
        lines = [line for line in lines if re.search(chosen.grep, line.text)]
    if (chosen.lines or "").isdecimal():
        lines = lines[-int(chosen.lines) :] if int(chosen.lines) else []
    if not lines and chosen.output != "json":
        yield "-- No entries --"
    for line in lines:
        now = boot + line.seconds
        if chosen.output == "json":
            fields = {"PRIORITY": str(line.priority), "MESSAGE": line.text, "SYSLOG_IDENTIFIER": "kernel"}
            yield json.dumps(fields | {"_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": str(int(now * 1e6))})
        elif chosen.output == "cat":
            yield line.text
        else:
            when = time.strftime("%b %d %H:%M:%S", time.localtime(now))
            yield f"{when} {os.uname().nodename} kernel: {line.text}"


def main(name: str, arguments: list[str]) -> int:
    """Be dmesg or journalctl; return the exit status."""
    chosen = options(name, arguments)
    lines = read()
    boot = time.time() - max((line.seconds for line in lines), default=0.0)
    for text in (dmesg if name == "dmesg" else journal)(lines, chosen, boot):
        sys.stdout.write(f"{text}\n")
    sys.stderr.write(f"{name}: SIMULATED by gpucheck\n")
    sys.stdout.flush()
    while chosen.follow:  # nothing is ever added
        time.sleep(3600)
    return 0
