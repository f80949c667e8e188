"""NCCL's own log (NCCL_DEBUG=VERSION, WARN, INFO or TRACE) of NCCL 2.4 to 2.31, alone or between other lines."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.imports._kind import LONGEST, Kind
from gpucheck.imports._numbers import MOST_GPUS
from gpucheck.imports._text import regex
from gpucheck.imports.nccl.tests import leftovers, set_by_environment, slowest
from gpucheck.knowledge.messages import meaning, row
from gpucheck.model.diagnosis.observations import Collective, Measured, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

MARK = "NCCL "
LEVEL = regex(r"\bNCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT|ERROR) (?P<text>)")
# host:pid:tid [gpu] file.cc:12 (function) before the level; each may be missing, as versions and launchers differ.
BEFORE = regex(
    r"(?:(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,20}) )?"
    r"(?P<gpu>\[-?\d{1,4}\] )?(?:\d{1,12}\.\d{1,9} )?"
    r"(?P<place>[\w./+-]{1,200}(?::\d{1,6}|\.(?:cc|cu|h):) )?(?:\(\w{1,100}\) )?$"
)
LOOK_BACK = 700
# Printed without any of this, at NCCL_DEBUG=VERSION.
VERSION = regex(r"^\s{0,8}NCCL version \d{1,2}\.\d{1,3}\.\d{1,3}\+\w")
# What NCCL hands to a framework as its last error, and the rest of messages of several lines.
REST = regex(
    r"Failed to bind NVLink SHARP \(NVLS\)|configuration error in the Fabric Manager or NVSwitches"
    r"|Disable NVLS \(NCCL_NVLS_ENABLE=0\)|shared memory segment /dev/shm/nccl-|failed to extend /dev/shm/nccl-"
    r"|Mismatched NCCL version detected|Duplicate GPU detected : rank|P2P is disabled between NVLINK connected GPUs"
    r"|Test NCCL failure \S{1,120}:\d|Test timeout \(\d{1,9}s\) \S{1,120}:\d"
    r"|Avg bus bandwidth\s{0,9}: [\d.e+-]{1,20} FAILED"
)


class Record(NamedTuple):
    """One message of NCCL. host None where the line does not name it; text: what follows the level."""

    host: str | None
    level: str
    text: str
    place: str = ""


# The usual form, for a look that costs little.
USUAL = regex(r"(?:^|:\d{1,10}:\d{1,20} (?:\[-?\d{1,4}\] )?|\[-?\d{1,4}\] )NCCL (?:INFO|WARN|TRACE) ")
# Every line of the log holds one of these.
MARKS = (MARK, "(NVLS)", "Fabric Manager or NVSwitches", "/dev/shm/nccl-", "NCCL_NVLS_ENABLE=0",  # noqa: S108 - a text
         "Duplicate GPU detected : rank", "P2P is disabled between NVLINK",
         "Test timeout (", "Avg bus bandwidth")  # fmt: skip


def is_line(line: str) -> bool:
    if MARK not in line:
        return REST.search(line) is not None
    if USUAL.search(line) is not None:
        return True
    return next(records(line), None) is not None or VERSION.match(line) is not None or REST.search(line) is not None


def records(line: str) -> Iterator[Record]:
    """The messages of one line; processes that write at the same time put several into one."""
    if MARK not in line:
        return
    found = []
    end = 0
    for match in LEVEL.finditer(line):
        before = BEFORE.search(line[max(end, match.start() - LOOK_BACK) : match.start()])
        if before is not None and (any(before.groupdict().values()) or not line[end : match.start()].strip(" \t|>")):
            start = match.start() - len(before[0])
            found.append((start, match.end(), before["host"], match["level"], (before["place"] or "").strip()))
            end = match.end()
    for i, (_, at, host, level, place) in enumerate(found):
        until = found[i + 1][0] if i + 1 < len(found) else len(line)
        yield Record(host, level, line[at:until].strip(), place)


CHANNEL = regex(
    r"\b(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? ?: "
    r"(?P<one>\d{1,6})(?:\[\w{1,16}\])? -> (?P<other>\d{1,6})(?:\[\w{1,16}\])? {1,3}"
    r"(?:\[(?:send|receive)\] )?via (?P<way>NET/\w[\w .-]{0,40}(?=/)|(?:P2P|SHM|NET)/\w{1,40}|direct shared memory)"
)
# The whole of the commonest line, of which a log of many GPUs has millions.
USUAL_CHANNEL = regex(
    r"(?:([\w.-]{1,255}):\d{1,10}:\d{1,20} )\[-?\d{1,4}\] NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : "
    r"(\d{1,6})\[\w{1,16}\] -> (\d{1,6})\[\w{1,16}\] (?:\[(?:send|receive)\] )?"
    r"via ((?:P2P|SHM|NET)/\w{1,40})[\w/]{0,80}$"
)
OLD_WAYS = {"direct shared memory": "SHM/direct"}
INIT = regex(
    r"\bcomm (?P<comm>0x\w{1,20}) rank (?P<rank>\d{1,6}) nranks (?P<ranks>\d{1,6}) cudaDev -?\d{1,4}"
    r"(?: nvmlDev -?\d{1,4})? busId (?P<bus>[0-9a-f]{1,12})\b(?:.{0,40}?commId (?P<id>0x\w{1,20}))?"
)
LIBRARY = regex(r"\bNCCL version (?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})")


class Channel(NamedTuple):
    """A connection between two ranks and the way it takes (``P2P/IPC``)."""

    one: int
    other: int
    way: str


class Seat(NamedTuple):
    """Where a rank of a communicator of so many ranks sits. communicator: its id, 0 where the version prints none."""

    communicator: str
    rank: int
    ranks: int
    bus_id: str


def channel_in(text: str) -> Channel | None:
    match = CHANNEL.search(text)
    if match is None:
        return None
    return Channel(int(match["one"]), int(match["other"]), OLD_WAYS.get(match["way"], match["way"]))


def seat_in(text: str) -> Seat | None:
    """The rank whose communicator is being initialized. NCCL packs the bus id into one number, function last."""
    match = INIT.search(text)
    if match is None:
        return None
    number = int(match["bus"], 16)
    bus_id = f"{number >> 20:04x}:{(number >> 12) & 0xFF:02x}:{(number >> 4) & 0xFF:02x}.{number & 0xF:x}"
    return Seat(match["id"] or "", int(match["rank"]), int(match["ranks"]), bus_id)


NAME = "nccl-log"
# NCCL reports failed calls of CUDA with its own text around CUDA's.
TABLES = (NAME, "cuda-error")
MOST_MESSAGES = 2000
# An INFO line with one of these words may report a failure; NCCL's WARN lines always do.
TROUBLE = regex(
    r"(?i)\b(?:error|fail|fatal|time(?:d )?-?out|unable|cannot|could not|couldn't|invalid|abort|corrupt|unhandled)"
)
SPEED = regex(r"\bspeed change detected: (\d{1,9}) -> (\d{1,9}) Mbps")
NVLS = regex(r"\bNVLS multicast support is (?P<no>not )?available on dev \d")
# Every cluster sets these for its network; they do not describe the paths in one host.
OF_THE_NETWORK = {"NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_COMM_ID"}


def parse(lines: list[str]) -> Part | None:
    """Return what the log reports of the host. Raises ImportProblem if no line is of NCCL, and nothing else.

    machine stays None: in containers the log names the container, which no other tool's output does.
    """
    log = _Log()
    for number, line in enumerate(lines, start=1):
        log.take(line, number)
    if not log.any_line:
        return None
    return log.part()


class _Log:
    """The combined content of the lines of a log."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.channels: set[Channel] = set()
        self.seats: set[Seat] = set()
        self.hosts: set[str] = set()
        self.versions: dict[str, None] = {}
        self.environment: dict[str, str] = {}
        self.usual: set[tuple[str, ...]] = set()
        self.nvls: dict[tuple[str | None, bool], Message] = {}
        self.keys: set[str] = set()
        self.any_line = False

    def take(self, line: str, number: int) -> None:
        if usual := USUAL_CHANNEL.match(line):
            self.usual.add(usual.groups())
            self.any_line = True
            return
        found = list(records(line))
        if not found and not is_line(line):
            return
        self.any_line = True
        if version := LIBRARY.search(line):
            self.versions[version["version"]] = None
        for one in found or [Record(None, "", line)]:
            self._take(one, line, number)

    def _take(self, one: Record, line: str, number: int) -> None:
        self.hosts |= {one.host} if one.host else set()
        if channel := channel_in(one.text):
            self.channels.add(channel)
            return
        if seat := seat_in(one.text):
            self.seats.add(seat)
        if "set by environment" in one.text:
            self.environment = {**dict(set_by_environment(one.text)), **self.environment}
        if nvls := NVLS.search(one.text):
            mixed = Message(key=f"{NAME}.nvls-mixed", text=line.strip()[:LONGEST], line=number)
            self.nvls.setdefault((one.host, nvls["no"] is None), mixed)
        if message := _message(one, line, number):
            self._add(message)

    def _add(self, message: Message) -> None:
        """Keep a message: the first of each meaning always, and of harmless ones no more."""
        is_new = message.key not in self.keys
        if is_new or (len(self.messages) < MOST_MESSAGES and row(message.key).verdict != "pass"):
            self.keys.add(message.key)
            self.messages.append(message)

    def part(self) -> Part:
        hosts = self.hosts | {host for host, *_ in self.usual}
        channels = self.channels | {Channel(int(one), int(other), way) for _, one, other, way in self.usual}
        way = slowest(channel.way for channel in channels)
        mixed = [one for (host, _), one in self.nvls.items() if {(host, True), (host, False)} <= self.nvls.keys()]
        through_host = {channel.way.split("/")[0] for channel in channels} == {"SHM"}
        staged = [Message(key=f"{NAME}.through-host", text=f"channels via {way}", line=1)] if through_host else []
        seen = Observations(
            gpus=_gpus(self.seats) if len(hosts) <= 1 else (),
            environment=leftovers([pair for pair in self.environment.items() if pair[0] not in OF_THE_NETWORK]),
            measured=Measured(collectives=(Collective(transport=way),) if way else ()),
        )
        return Part(
            facts=Facts(observed=seen),
            messages=(*self.messages, *mixed, *staged),
            looked_at=(_looked_at(list(self.versions), channels, self.seats, len(hosts)),),
        )


def _message(one: Record, line: str, number: int) -> Message | None:
    """What a line means. INFO lines are looked at too: some warnings are of that level in some versions."""
    whole = f"{one.place} NCCL {one.level} {one.text}" if one.level else one.text
    for name in TABLES if one.level in ("WARN", "ERROR", "") else TABLES[:1]:
        known = meaning(name, whole[:LONGEST])
        if known is not None:
            lower = SPEED.search(one.text)
            if lower is not None and int(lower[2]) < int(lower[1]):
                return Message(key=f"{NAME}.ib-speed", text=line.strip()[:LONGEST], line=number)
            return Message(key=known[0].key, text=line.strip()[:LONGEST], line=number, gpu=known[1])
    if one.level in ("WARN", "ERROR", "ABORT") or (one.level == "INFO" and TROUBLE.search(one.text)):
        return Message(key=f"{NAME}.unrecognized", text=line.strip()[:LONGEST], line=number)
    return None


def _gpus(seats: set[Seat]) -> tuple[ObservedGpu, ...]:
    by_size: dict[tuple[int, str], dict[int, str]] = defaultdict(dict)
    for seat in sorted(seats):
        by_size[seat.ranks, seat.communicator][seat.rank] = seat.bus_id
    if not by_size:
        return ()
    (ranks, _), largest = max(by_size.items(), key=lambda item: item[0])
    buses = set(largest.values())
    if len(buses) != ranks or ranks > MOST_GPUS or {seat.bus_id for seat in seats} != buses:
        return ()
    return tuple(ObservedGpu(bus_id=bus) for bus in sorted(buses))


def _looked_at(versions: list[str], channels: set[Channel], seats: set[Seat], hosts: int) -> str:
    """``NCCL 2.21.5 chose P2P between all 8 GPUs``."""
    name = f"NCCL {versions[0]}" if len(versions) == 1 else "NCCL"
    where = f" of {hosts} hosts" if hosts > 1 else ""
    if not channels:
        return f"the log of {name}{where}"
    pairs: dict[str, set[frozenset[int]]] = defaultdict(set)
    for one in channels:
        pairs[one.way.split("/")[0]].add(frozenset((one.one, one.other)))
    if len(pairs) == 1:
        ranks = max((seat.ranks for seat in seats), default=0)
        kind = next(iter(pairs))
        between = f"between all {ranks} GPUs" if ranks > 1 else f"for {counted(len(pairs[kind]), 'pair')} of GPUs"
        return f"{name} chose {kind} {between}{where}"
    counts = ", ".join(f"{kind} for {counted(len(pairs[kind]), 'pair')}" for kind in sorted(pairs))
    return f"{name} chose {counts}{where}"


KIND = Kind(
    name=NAME,
    title="a log of NCCL (NCCL_DEBUG)",
    parse=parse,
    hints=("NCCL", "/shm/nccl-", "Test timeout", "bus bandwidth"),
    line=is_line,
    marks=MARKS,
)
