"""Logs of the kernel, of fabric manager and of the DCGM host engine, and the kernel's parameters."""

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from gpucheck.imports._kind import LONGEST, Kind
from gpucheck.imports._text import absent, first_line, quoted, regex
from gpucheck.knowledge.messages import families, meaning, messages
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, ObservedHost, Port
from gpucheck.model.facts import Facts
from gpucheck.model.host.readings import KernelLine, KernelLog
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

# Logs and error messages of installers and services.


# A kernel log as people paste it: dmesg, journalctl, syslog, /dev/kmsg, or the bare messages.
#
# Every form gives the same messages. What stands before a message is taken off piece by piece: quotes, priorities,
# times, host and program. Lines that the kernel or syslog joined (``#012``, ``\x0a``) are taken apart again.
MAX_LINE = 16_384
SHORTEST = 7  # MESSAGE, the shortest line that means something
MOST_LINES = 500_000  # the newest are kept
LARGE = 4 << 20  # of a larger log only what can mean something is read
DIGITS = b"0123456789"
AVAILABLE = regex(
    r"\b(?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]): [\d.]{1,9} Gb/s available PCIe bandwidth, limited by"
    r" .{1,30} x(?P<width>\d{1,2}) link at \S{1,20} \(capable of .{1,50} x(?P<most>\d{1,2}) link\)"
)
OF_NVIDIA = regex(r"\b(?:nvidia (?P<bus>[0-9a-f]{4}:[0-9a-f:]{5}\.0): |pci (?P<seen>[0-9a-f:.]{12}): \[10de:)")
OF_A_CARD = regex(r"\b(?:mlx[45]_core|bnxt_en|ice) [0-9a-f]{4}:")
LOOK = 10_000  # a log shows what it is in its first lines
# Pieces before a message, one after the other. None can match nothing. UCX has seconds since 1970 in brackets.
PIECE = regex(
    "|".join(
        (
            r"(?:[>|`]+ ?)+",
            r"<\d{1,3}>(?:1 )?",
            r"\d{1,4},\d{1,12},(?P<micro>\d{1,18}),[^;\s]{0,100};",
            r"(?P<level>[a-z0-9]{3,8} *:(?:emerg|alert|crit|err|warn|notice|info|debug) *): ?",
            r"\[ *(?P<seconds>\d{1,9}\.\d{1,9})\] ?",
            r"\[ *[TC]\d{1,10}\] ?",
            r"\[ *[+]\d{1,10}\.\d{1,9}\] ?",
            r"\[(?P<ctime>(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} {0,2}\d{1,2}(?: \d{4})? \d\d:\d\d"
            r"(?::\d\d(?:\.\d{1,9})?)?(?: \d{4})?)\] ?",
            r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?) ?",
            r"(?P<full>[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [A-Z]{2,5}) ",
            r"(?P<syslog>[^\W\d_]{1,6}\.? [ \d]?\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) ",
            r"(?P<unix>\d{9,10}\.\d{6}) ",
            r"(?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?) ",
            r"(?P<kernel>(?:[\w.-]{1,255} )?kernel(?: - - -|\[\d{1,7}\]:|:)) ?",
            r"[\w.-]{1,255} (?=(?:systemd|nv|dcgm)[\w.@-]{0,60}(?:\[\d{1,10}\])?: )",
        )
    )
)
MOST_PIECES = 9
CLOCKS = ("ctime", "iso", "full", "syslog", "unix", "time")
OF_THE_KERNEL = ("micro", "level", "seconds", "kernel")
WEEKDAY = regex(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ")
# What stands nowhere but in a kernel log or in what the services of the driver print.
IS_KERNEL_LOG = regex(
    r"\bNVRM: |nvidia-nvswitch\d*: |\bSXid \(|\bpcieport [0-9a-f]{4}:|\bDMAR: |\bAMD-Vi: |arm-smmu-v3 "
    r"|\[Hardware Error\]: |\bEDAC MC\d|\b(?:nvidia|nouveau|pci) [0-9a-f]{4}:[0-9a-f]{2}:"
    r"|\bnvidia(?:_\w+)?: (?:module|loading|Unknown|disagrees|version|probe of|Loading)|nv-fabricmanager\["
    r"|\bnvidia-(?:modeset|uvm|drm|nvlink|caps|fs|gpu|peermem)(?: [\w:.]{4,20})?: "
    r"|\bnvidia/[\w/-]{1,60}\.c:\d|\bnouveau: "
    r"|nvidia-(?:fabricmanager(?:-start\.sh)?|persistenced)(?:\.service|\[\d+\])?: |blocked for more than \d"
    r"|Loading of (?:unsigned )?module|insert module 'nvidia|Module nvidia not found in directory"
    # Other reasons, and those of other languages, are errors of modprobe.
    r"|could not insert '?nv(?:idia\w{0,12}|_peer_mem)'?: (?:Key was|Required key|Operation not|Exec|Invalid|Unknown sy"
    r"|No such d)"
    r"|\bOut of memory: Kill|emory cgroup out of memory|\boom-kill:constraint=|invoked oom-killer: |\boom_reaper: "
    r"|\bKilled process \d+ \(|soft lockup - CPU#|detected hard LOCKUP|\brcu\w{0,20}: INFO: |\bINFO: rcu_|\bmce: "
    r"|\bpciehp: |\b(?:mlx[45]|bnxt)_\w+(?: [0-9a-f]{4}:|: )|\bmlx5_\w+:\d+:\(pid|: segfault at [0-9a-fx]+ ip "
    r"|\bAER: |\bDPC: "
    r"|NETDEV WATCHDOG: |Port module event|\bnv-hostengine\[|\bEDAC \w+: |cpu clock (?:is )?throttled|\bKernel panic - "
    r"|^BUG: |\bkernel BUG at "
)
OF_A_RECORD = regex(r" [A-Z_]+=")  # the dictionary of a /dev/kmsg record
# Every line of the driver and of its devices, and the heads of records and traces of several lines.
DRIVER = ("NVRM", "nvidia", "NVSwitch", "Xid", "[Hardware Error]", "pcieport", "nouveau", "vfio-pci", "[10de:")
TRACES = ("soft lockup", "BUG:", "general protection fault", "Oops", "hard LOCKUP", "kernel BUG at", "blocked for more")
BEFORE, AFTER, AFTER_A_TRACE = 1, 2, 60
NEW_LINE = regex(r"\n|#012|\\x0a|\\n")
GROUP = regex(r"\((?:[^()\\]|\\.)*\)")


class _Line(NamedTuple):
    """One line without its prefix. own: it had a prefix, so this starts a record."""

    text: str
    seconds: float | None
    clock: str | None
    own: bool
    kernel: bool


def _is_log(lines: list[str]) -> bool:
    """A line with a time of the kernel's log or a message that only a kernel log or a service of the driver has."""
    head = lines[:LOOK]
    return any(IS_KERNEL_LOG.search(line) for line in head) or any(found.kernel for found in _records(head))


def parse(lines: list[str]) -> Part | None:
    log = log_of(lines)
    observed = Observations(gpus=tuple(_narrow(log)))
    return Part(
        partial=bool(observed.gpus),
        facts=Facts(kernel_log=log, observed=observed),
        messages=tuple(_narrow_cards(log)),
        looked_at=(f"{counted(len(log.lines), 'line')} of a kernel log",),
    )


def _limited(log: KernelLog) -> dict[str, re.Match[str]]:
    """By bus id the newest line about a link with fewer lanes than the device can use (pcie_print_link_status)."""
    found = (match for line in log.lines if (match := AVAILABLE.search(line.text)))
    return {match["bus"]: match for match in found if int(match["width"]) < int(match["most"])}


def _narrow_cards(log: KernelLog) -> Iterator[Message]:
    """Network cards: the kernel does not print what the slot could give, so that this may be as built."""
    for match in _limited(log).values():
        if OF_A_CARD.search(match.string):
            yield Message(key="nic-link.lanes", text=match.string)


def _narrow(log: KernelLog) -> Iterator[ObservedGpu]:
    """GPUs with fewer lanes than they can use when the kernel found them."""
    gpus = {match["bus"] or match["seen"] for line in log.lines if (match := OF_NVIDIA.search(line.text))}
    for bus_id, match in _limited(log).items():
        if bus_id in gpus:
            yield ObservedGpu(bus_id=bus_id, pcie=Port(width=int(match["width"]), max_width=int(match["most"])))


def log_of(lines: list[str]) -> KernelLog:
    """The messages, oldest first. Raises ImportProblem where nothing is recognised, and nothing else."""
    found = _relevant(lines) if sum(map(len, lines)) > LARGE else lines
    kept = deque(
        (
            KernelLine(text=part, seconds=one.seconds, clock=one.clock)
            for one in _records(found)
            for part in NEW_LINE.split(one.text)
            if part.strip()
        ),
        maxlen=MOST_LINES,
    )
    if not kept or not _is_log(lines):
        first = first_line(lines)
        raise absent(
            "kernel log",
            f"it starts with {quoted(first)}, and no line is one of dmesg, journalctl -k, syslog or /dev/kmsg",
            "Save the log and give that: sudo dmesg > kernel.txt, or journalctl -k > kernel.txt",
        )
    return KernelLog(lines=tuple(kept), source="pasted log")


@cache
def _words() -> tuple[str, ...]:
    """What every message holds that must be understood; words that imply another one are left out."""
    words = {*DRIVER, *(word for row in messages() if not all(map(_by_driver, row.patterns)) for word in row.words)}
    words |= {word for family in families() for word in family.words}
    return tuple(sorted(word for word in words if not any(one != word and one in word for one in words)))


def _by_driver(pattern: str) -> bool:
    rest, before = pattern, ""
    while rest != before:
        rest, before = GROUP.sub("", rest), rest
    return pattern.startswith(DRIVER) and "|" not in rest


def _relevant(lines: list[str]) -> list[str]:
    """The same log without lines that no reader of it looks at, so that a hundred megabytes are read in seconds.

    The lines around a relevant line are kept.
    """
    # Lines of large logs differ in little but numbers: each kind of line is searched once.
    kinds = set("\n".join(lines).encode(errors="replace").translate(None, DIGITS).split(b"\n"))
    gist = b"\n".join(kinds)
    looked_for = [*((word, AFTER) for word in _words()), *((word, AFTER_A_TRACE) for word in TRACES)]
    present = [(word, after) for word, after in looked_for if word.encode().translate(None, DIGITS) in gist]
    keep: set[int] = set()
    for word, after in present:
        for at in [i for i, line in enumerate(lines) if word in line]:
            # A run of relevant lines is added once.
            if at + after not in keep:
                keep.update(range(max(0, at - BEFORE), at + after + 1))
            elif at - BEFORE not in keep:
                keep.update(range(max(0, at - BEFORE), at + 1))
    return [lines[at] for at in sorted(keep) if at < len(lines)]


def _records(lines: Sequence[str]) -> Iterator[_Line]:
    """Every line of the log; a continuation has the times of the line it belongs to."""
    before = _Line("", None, None, own=False, kernel=False)
    for raw in lines:
        if len(raw) < SHORTEST:
            continue
        line = raw[:MAX_LINE].rstrip()
        message = record(line)
        if message is not None:
            yield message
            continue
        found = _stripped(line)
        if found.own or not before.own or not line[:1].isspace():
            before = found
            yield found
        elif not OF_A_RECORD.match(line):
            yield found._replace(seconds=before.seconds, clock=before.clock)


def _stripped(line: str) -> _Line:
    text = line.lstrip()
    reported: dict[str, str] = {}
    for _ in range(MOST_PIECES):
        match = PIECE.match(text)
        if match is None:
            break
        reported |= {name: value for name, value in match.groupdict().items() if value}
        reported["any"] = "yes"
        text = text[match.end() :].lstrip()
    seconds = (
        float(reported["seconds"])
        if "seconds" in reported
        else int(reported["micro"]) / 1e6
        if "micro" in reported
        else None
    )
    clock = next((reported[name] for name in CLOCKS if name in reported), None)
    kernel = any(name in reported for name in OF_THE_KERNEL) or WEEKDAY.match(reported.get("ctime", "")) is not None
    return _Line(text, seconds, clock, own="any" in reported, kernel=kernel)


# The commonest beginning, to be quick with large logs.
PRINTK = regex(r"[ \t]{0,8}(?:<\d{1,3}>)?\[ {0,10}\d{1,9}\.\d{6}\] \S")


def _is_line(line: str) -> bool:
    return (
        PRINTK.match(line) is not None
        or IS_KERNEL_LOG.search(line) is not None
        or '"MESSAGE"' in line
        or (len(line) >= SHORTEST and _stripped(line[:MAX_LINE]).kernel)
    )


# Text that `_is_line` requires, so that it is called only on candidates.
MARKS: tuple[str | re.Pattern[str], ...] = (
    regex(r"\[ *\d{1,9}\.\d{1,9}\]"),
    regex(r"^\W{0,16}\d{1,4},\d{1,12},\d{1,18},", re.MULTILINE),
    *("NVRM: ", "nvidia", "SXid (", "pcieport ", "DMAR: ", "AMD-Vi: ", "arm-smmu-v3 ", "[Hardware Error]: ", "EDAC MC"),
    *("nouveau", "pci ", "nv-fabricmanager[", "blocked for more than ", "Loading of ", "Module nvidia not found"),
    *('"MESSAGE"', "kernel", *(f"[{day} " for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))),
    *(":emerg", ":alert", ":crit", ":err", ":warn", ":notice", ":info", ":debug"),
    *(
        "Out of memory: Kill",
        "cgroup out of memory",
        "oom-kill",
        "oom_reaper: ",
        "Killed process ",
        "soft lockup - CPU#",
    ),
    *("detected hard LOCKUP", ": INFO: ", "INFO: rcu_", "mce: ", "pciehp: ", "mlx", ": segfault at ", "AER: ", "DPC: "),
    *(
        "NETDEV WATCHDOG: ",
        "Port module event",
        "nv_peer_mem",
        "bnxt_",
        "nv-hostengine[",
        "EDAC ",
        "throttled",
        "Kernel panic - ",
        "BUG",
    ),
)


KIND = Kind(
    name="kernel-log",
    title="a kernel log (dmesg, journalctl -k, syslog)",
    parse=parse,
    loose=True,
    marks=MARKS,
    line=_is_line,
)


def record(line: str) -> _Line | None:
    """Return one record of journalctl -o json; None for any other line."""
    line = line.lstrip()
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
    clock = clock if isinstance(clock, str) else None  # microseconds since 1970
    return _Line(_text(found.get("MESSAGE")), seconds, clock, own=True, kernel=True)


def _text(message: Any) -> str:
    """A message that is not UTF-8 is a list of its bytes; one that is too long is null."""
    if isinstance(message, list):
        return bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode(errors="replace")
    return message if isinstance(message, str) else ""


# fabricmanager.log and nv-hostengine.log: lines that begin with date, level and thread.
#
# All such lines belong to the log; most state that fabric manager works. Its messages in a journal are read as a kernel
# log.
NAME = "fabric-manager-log"
HEAD = regex(
    r"^\s{0,4}\[[A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d\] \[(?P<level>[A-Z]{4,9})\] \[tid \d{1,9}\] (?P<text>.*)$"
)
# nv-hostengine.log of DCGM: 2026-01-16 09:54:30.534 ERROR [3279516:3279516] text [/builds/dcgm/...cpp:855] [function]
ENGINE = regex(
    r"^\s{0,4}\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?P<level>[A-Z]{4,8})\s{1,4}\[\d{1,9}:\d{1,9}\] (?P<text>.*)$"
)
# Lines that belong to the one before. A report of an NVLink error has a list of fields.
MORE = regex(
    r"^(?:Message payload details:|Message header details:|"
    r"(?:moduleId|nodeId|partitionId|gpuGuid|portNum|portStatus|errorCode|errorSubcode|portDownReasonCode|isErrorFirst|"
    r"errorStatus|switchGuid|switchChipId) : )"
)
BAD = ("ERROR", "FATAL", "CRITICAL")


def _fabric_is_line(line: str) -> bool:
    line = line[:LONGEST]
    return HEAD.match(line) is not None or ENGINE.match(line) is not None or MORE.match(line) is not None


def fabric_parse(lines: list[str]) -> Part | None:
    found: list[Message] = []
    count = 0
    for number, line in enumerate(lines, start=1):
        head = HEAD.match(line[:LONGEST]) or ENGINE.match(line[:LONGEST])
        if head is None:
            continue
        count += 1
        known = meaning(NAME, line[:LONGEST])
        if known is not None and not known[0].key.endswith(".error"):
            row, gpu = known
            found.append(Message(key=row.key, text=line.strip()[:LONGEST], line=number, gpu=gpu))
        elif head["level"] in BAD and head.re is HEAD:
            found.append(Message(key=f"{NAME}.error", text=line.strip()[:LONGEST], line=number))
    if not count:
        return None
    return Part(messages=tuple(found), looked_at=(f"{counted(count, 'line')} of the fabric manager log",))


FABRIC = Kind(
    name=NAME,
    title="a log of fabric manager or of the DCGM host engine",
    parse=fabric_parse,
    loose=True,
    hints=("] [tid ", "Message payload details:", "gpuGuid", "DEBUG [", "INFO  [", "ERROR [", "WARN  ["),
    line=_fabric_is_line,
)


# The kernel's parameters (/proc/cmdline, the first line of its log, GRUB's file): what they set the IOMMU to.
#
# AMD's IOMMU needs no parameter, so their absence is no evidence. Sources: Linux
# Documentation/admin-guide/kernel-parameters.txt; arch/x86/Kconfig and drivers/iommu/Kconfig (IOMMU_DEFAULT_DMA_LAZY).
LINE = regex(r"(?:BOOT_IMAGE=|\broot=(?:UUID=|/dev/)|GRUB_CMDLINE_LINUX(?:_DEFAULT)?=|[Cc]ommand line: )")
OFF = regex(r"(?<![\w.])iommu=off(?![\w=])")
OFF_OF_VENDOR = regex(r"(?<![\w.])(intel|amd)_iommu=off(?![\w=])")  # a CPU of the other vendor ignores it
IDENTITY = regex(r"(?<![\w.])(?:iommu=pt|iommu\.passthrough=1|iommu=[\w,]*\bpt\b)(?![\w=])")
TRANSLATING = regex(r"(?<![\w.])(?:intel_iommu=on\b|iommu\.passthrough=0|iommu=nopt|iommu=force)")


def boot_parse(lines: list[str]) -> Part | None:
    text = " ".join(lines)
    vendors = sorted(set(OFF_OF_VENDOR.findall(text)))
    if OFF.search(text) or len(vendors) > 1:
        host, words = ObservedHost(iommu="off"), "is off"
    elif vendors:
        host, words = ObservedHost(), f"is off if it is {vendors[0]}_iommu"
    elif IDENTITY.search(text):
        host, words = ObservedHost(iommu="identity"), "passes addresses through"
    elif TRANSLATING.search(text):
        host, words = ObservedHost(iommu="translating"), "translates"
    else:
        return None
    return Part(facts=Facts(observed=Observations(host=host)), looked_at=(f"kernel parameters: the IOMMU {words}",))


BOOT = Kind(
    "kernel-parameters",
    "the kernel's parameters (/proc/cmdline)",
    boot_parse,
    hints=("iommu",),
    marks=("iommu",),
    line=lambda line: "iommu" in line and LINE.search(line) is not None,
)
