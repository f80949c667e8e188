"""``nvidia-smi topo -p2p``: whether the driver lets one GPU read (r) or write (w) another's memory, and more."""

import re
from collections.abc import Iterator, Sequence

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import regex
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, Words
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

STATUS = "OK|CNS|GNS|TNS|NS|DR|U"
HEADER = regex(r"^[\s|]*GPU\d{1,3}(?:[\s|]+GPU\d{1,3})*[\s|]*$")
ROW = regex(rf"^[\s|]*GPU(\d{{1,3}})((?:[\s|]+(?:X|{STATUS}|N/A|\?|ERR!?))+)[\s|]*$")
STATUS_CELL = regex(rf"(?<!\w)(?:{STATUS})(?!\w)")
LEGEND = regex(r"^\s*(?:Legend:|(?:X|OK|CNS|GNS|TNS|NS|DR|U)\s{0,6}=\s)")
COMMAND = regex(r"-p2p\s{1,4}-?([rwnap]{1,5})\b")
MOST_GPUS = 128
MOST_ABOVE = 4  # lines between the command and the table
KINDS = {"r": "read access", "w": "write access", "n": "NVLink access", "a": "atomic operations", "p": "PCIe access"}


def parse(lines: list[str]) -> Part | None:
    """The table.

    p2p_status: of reading or writing; of a table of another kind nothing is kept. Where the command is not in the
    text, NS may be of another kind of access (no NVLink, no atomic operations), and is taken as unknown.
    """
    command = next((match[1] for line in lines if (match := COMMAND.search(line))), None)
    rows: dict[int, list[str]] = {}
    columns: list[int] = []
    for line in lines:
        match = ROW.match(line)
        if match and len(rows) < MOST_GPUS:
            rows.setdefault(int(match[1]), match[2].replace("|", " ").split())
        elif not columns and HEADER.match(line):
            columns = [int(gpu) for gpu in re.findall(r"GPU(\d{1,3})", line)]
    columns = columns or sorted(rows)
    if not rows or len(set(columns)) != len(columns) or len(columns) > MOST_GPUS:
        return None
    access = [KINDS[letter] for letter in KINDS if command and letter in command]
    counted = f"{' and '.join(access) or 'peer access'} of {len(columns)} GPUs as the driver reports it"
    if command is not None and not set(command) & {"r", "w"}:
        return Part(looked_at=(counted,))
    status = tuple(tuple(_cell(rows.get(a), at, a == b, command) for at, b in enumerate(columns)) for a in columns)
    gpus = tuple(ObservedGpu() for _ in columns)
    return Part(facts=Facts(observed=Observations(gpus=gpus, p2p_status=_known(status))), looked_at=(counted,))


def _cell(row: list[str] | None, at: int, own: bool, command: str | None) -> str | None:
    if own:
        return "X"
    if row is None or at >= len(row) or not STATUS_CELL.fullmatch(row[at]):
        return None
    return None if row[at] == "U" or (row[at] == "NS" and command is None) else row[at]


def _known(status: Words) -> Words | None:
    return status if any(cell not in (None, "X") for row in status for cell in row) else None


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(lines):
        if not (ROW.match(lines[at]) and STATUS_CELL.search(lines[at])):
            at += 1
            continue
        first = at
        while first > 0 and (ROW.match(lines[first - 1]) or HEADER.match(lines[first - 1])):
            first -= 1
        for above in range(first - 1, max(first - 1 - MOST_ABOVE, -1), -1):
            if COMMAND.search(lines[above]) and len(lines[above]) < 400:
                first = above
                break
        last = at
        while at < len(lines) and (ROW.match(lines[at]) or LEGEND.match(lines[at]) or not lines[at].strip()):
            last = at if lines[at].strip() else last
            at += 1
        yield first, last


KIND = Kind(
    "nvidia-smi-topo-p2p",
    "the output of nvidia-smi topo -p2p",
    parse,
    hints=("GPU0", "GPU1"),
    blocks=_blocks,
)
