"""Lines of NCCL's log, whatever stands before them, and the content of single lines."""

import re
from collections.abc import Iterator
from typing import NamedTuple

MARK = "NCCL "
LEVEL = re.compile(r"\bNCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT|ERROR) (?P<text>)")
# host:pid:tid [gpu] file.cc:12 (function) before the level; each may be missing, as versions and launchers differ.
BEFORE = re.compile(
    r"(?:(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,20}) )?"
    r"(?P<gpu>\[-?\d{1,4}\] )?(?:\d{1,12}\.\d{1,9} )?"
    r"(?P<place>[\w./+-]{1,200}:\d{1,6} )?(?:\(\w{1,100}\) )?$"
)
LOOK_BACK = 700
# Printed without any of this, at NCCL_DEBUG=VERSION.
VERSION = re.compile(r"^\s{0,8}NCCL version \d{1,2}\.\d{1,3}\.\d{1,3}\+\w")
# What NCCL hands to a framework as its last error, and the rest of messages of several lines.
REST = re.compile(
    r"Failed to bind NVLink SHARP \(NVLS\)|configuration error in the Fabric Manager or NVSwitches"
    r"|Disable NVLS \(NCCL_NVLS_ENABLE=0\)|shared memory segment /dev/shm/nccl-|failed to extend /dev/shm/nccl-"
    r"|Mismatched NCCL version detected|Duplicate GPU detected : rank|P2P is disabled between NVLINK connected GPUs"
    r"|Test NCCL failure \S{1,120}:\d"
)


class Record(NamedTuple):
    """One message of NCCL. host None where the line does not name it; text: what follows the level."""

    host: str | None
    level: str
    text: str
    place: str = ""


# The usual form, for a look that costs little.
USUAL = re.compile(r"(?:^|:\d{1,10}:\d{1,20} (?:\[-?\d{1,4}\] )?|\[-?\d{1,4}\] )NCCL (?:INFO|WARN|TRACE) ")
# Every line of the log holds one of these.
MARKS = (MARK, "(NVLS)", "Fabric Manager or NVSwitches", "/dev/shm/nccl-", "NCCL_NVLS_ENABLE=0",  # noqa: S108 - a text
         "Duplicate GPU detected : rank", "P2P is disabled between NVLINK")  # fmt: skip


def is_line(line: str) -> bool:
    """Whether a line is of NCCL's log."""
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


CHANNEL = re.compile(
    r"\b(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? ?: "
    r"(?P<one>\d{1,6})(?:\[\w{1,16}\])? -> (?P<other>\d{1,6})(?:\[\w{1,16}\])? {1,3}"
    r"(?:\[(?:send|receive)\] )?via (?P<way>NET/\w[\w .-]{0,40}(?=/)|(?:P2P|SHM|NET)/\w{1,40}|direct shared memory)"
)
# The whole of the commonest line, of which a log of many GPUs has millions.
USUAL_CHANNEL = re.compile(
    r"(?:([\w.-]{1,255}):\d{1,10}:\d{1,20} )\[-?\d{1,4}\] NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : "
    r"(\d{1,6})\[\w{1,16}\] -> (\d{1,6})\[\w{1,16}\] (?:\[(?:send|receive)\] )?"
    r"via ((?:P2P|SHM|NET)/\w{1,40})[\w/]{0,80}$"
)
OLD_WAYS = {"direct shared memory": "SHM/direct"}
INIT = re.compile(
    r"\bcomm (?P<comm>0x\w{1,20}) rank (?P<rank>\d{1,6}) nranks (?P<ranks>\d{1,6}) cudaDev -?\d{1,4}"
    r"(?: nvmlDev -?\d{1,4})? busId (?P<bus>[0-9a-f]{1,12})\b(?:.{0,40}?commId (?P<id>0x\w{1,20}))?"
)
LIBRARY = re.compile(r"\bNCCL version (?P<version>\d{1,2}\.\d{1,3}\.\d{1,3})")


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
    """The connection that a message reports."""
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
