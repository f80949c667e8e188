"""fabricmanager.log and nv-hostengine.log: lines that begin with date, level and thread.

All such lines belong to the log; most state that fabric manager works. Its messages in a journal are read as a kernel
log.
"""

from gpucheck.imports._kind import Kind
from gpucheck.imports._messages import LONGEST
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.knowledge.messages import meaning
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

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


def _is_line(line: str) -> bool:
    line = line[:LONGEST]
    return HEAD.match(line) is not None or ENGINE.match(line) is not None or MORE.match(line) is not None


def parse(lines: list[str]) -> Part:
    """The messages with a known meaning, and errors without one. Raises ImportProblem."""
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
        raise absent(
            "fabric manager log",
            "no line begins with date, level and thread as in fabricmanager.log",
            "Give /var/log/fabricmanager.log",
        )
    return Part(messages=tuple(found), looked_at=(f"{counted(count, 'line')} of the fabric manager log",))


KIND = Kind(
    name=NAME,
    title="a log of fabric manager or of the DCGM host engine",
    parse=parse,
    loose=True,
    hints=("] [tid ", "Message payload details:", "gpuGuid", "DEBUG [", "INFO  [", "ERROR [", "WARN  ["),
    line=_is_line,
)
