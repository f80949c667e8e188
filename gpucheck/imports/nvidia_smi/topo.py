"""``nvidia-smi topo`` as people paste it: -m of any driver, damaged by terminals, mail, wikis and editors, and -p2p."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.imports._kind import Damage, Kind, of_topology
from gpucheck.imports._text import absent, regex, spans
from gpucheck.imports.nvidia_smi._topo_blocks import (
    GPU_ROW,
    Block,
    Row,
    affinity,
    blocks,
    is_whole,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu, Words
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Finding
from gpucheck.model.host.wiring import Nic, Pair, TopologyGpu
from gpucheck.model.paste import Part
from gpucheck.model.topology import Topology

SOURCE = "nvidia-smi-topo"
SUBJECT = Subject(check="topology")
AGAIN = "Paste the complete output again, from the line that names the columns: nvidia-smi topo -m > topo.txt"
NIC_LEGEND = regex(r"(?<!\w)(NIC\d{1,4})\s*:\s*([A-Za-z][\w.\-]{0,63})")
# In a table of Markdown nothing but a tab is left between the two.
NIC_ROW = regex(r"^\s*(NIC\d{1,4})\t\s*([A-Za-z][\w.\-]{0,62}\d)\s*$", re.MULTILINE)
NIC_LEGEND_LINES = 600
# Nearest first. A pair whose two cells differ is evaluated by the farther one: no more is certain.
DISTANCE = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}


def parse(lines: list[str]) -> Part:
    """The first ``topo -m`` matrix with a whole row, else the one with most rows.

    matrix: n x n classes in header order, SOC read as SYS, None where neither the row nor the mirrored row has the
    cell. TopologyGpu.numa_affinity and gpu_numa_id are as printed; numa_node only where the affinity is one node.
    findings: what is missing or contradicts itself.
    """
    found = [one for one in blocks(lines) if not one.is_p2p_status and any(row.cells.values for row in one.rows)]
    block = max(found, key=lambda one: (one.good > 0, 0 if one.good else len(one.rows)), default=None)
    if block is None:
        why = "no rows of path classes below a line that names the columns; the paste is cut short"
        raise absent("nvidia-smi topo -m matrix", why, AGAIN)
    table = _Table(block)
    matrix = tuple(tuple(table.value(a, b) for b in block.header.gpus) for a in block.header.gpus)
    topology = Topology(
        source=SOURCE,
        gpus=tuple(_gpu(label, table) for label in block.header.gpus),
        matrix=matrix,
        nics=_nics(table, lines),
        pairs=_pairs(block, matrix),
    )
    return of_topology(topology, _damage(table, matrix))


class _Table:
    """The cells of one block by label. The first of two rows with one label counts."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.columns = {label: index for index, label in enumerate(block.header.labels)}
        self.rows: dict[str, Row] = {}
        self.damaged: list[Row] = []
        self.twice: list[Row] = []
        for row in block.rows:
            if row.label in self.rows:
                self.twice.append(row)
            # Of words that are not a class, in an incomplete row, the cells that they belong to are unknown.
            elif (
                _shifted(row, self.columns[row.label])
                or row.cells.surplus
                or (row.cells.unexpected and not is_whole(row, block.header))
            ):
                self.damaged.append(row)
            else:
                self.rows[row.label] = row

    def printed(self, a: str, b: str) -> str | None:
        row, column = self.rows.get(a), self.columns[b]
        return row.cells.values[column] if row and column < len(row.cells.values) else None

    def value(self, a: str, b: str) -> str | None:
        """The cell, or the mirrored one where it is missing. The diagonal is always X."""
        return "X" if a == b else self.printed(a, b) or self.printed(b, a)

    def affinity(self, gpu: str) -> dict[str, str | None]:
        row = self.rows.get(gpu)
        if row is None or not is_whole(row, self.block.header):
            return {}
        return affinity(row.cells, self.block.header.affinities, self.block.header.cpu_at)


def _shifted(row: Row, column: int) -> bool:
    """A cell got lost or came in: the row does not cross itself where it should."""
    crossings = [index for index, value in enumerate(row.cells.values) if value == "X"]
    return crossings != [column] and (bool(crossings) or len(row.cells.values) > column)


def _gpu(label: str, table: _Table) -> TopologyGpu:
    near = table.affinity(label)
    numa = near.get("numa")
    return TopologyGpu(
        index=int(label[3:]),
        numa_node=int(numa) if numa is not None and numa.isdecimal() and len(numa) < 6 else None,
        cpu_affinity=near.get("cpu"),
        numa_affinity=numa,
        gpu_numa_id=near.get("gpu_numa_id"),
    )


def _nics(table: _Table, lines: list[str]) -> tuple[Nic, ...]:
    header, end = table.block.header, table.block.end
    legend: dict[str, str] = {}
    below = "\n".join(lines[end : end + NIC_LEGEND_LINES])
    for label, name in (*NIC_LEGEND.findall(below), *NIC_ROW.findall(below)):
        legend.setdefault(label, name)
    rows = any(nic in table.rows for nic in header.nics)
    return tuple(
        Nic(
            label=nic,
            name=legend.get(nic) if re.fullmatch(r"NIC\d+", nic) else nic,
            classes=tuple(table.value(gpu, nic) for gpu in header.gpus),
            peers=tuple(table.value(nic, other) for other in header.nics) if rows else (),
        )
        for nic in header.nics
    )


def _pairs(block: Block, matrix: tuple[tuple[str | None, ...], ...]) -> tuple[Pair, ...]:
    indexes = [int(label[3:]) for label in block.header.gpus]
    return tuple(
        Pair(a=indexes[i], b=indexes[j], cls=_farther(matrix[i][j], matrix[j][i]))
        for i, j in combinations(range(len(indexes)), 2)
    )


def _farther(one: str | None, other: str | None) -> str | None:
    return max((one, other), key=_distance) if one and other else None


def _distance(cls: str) -> int:
    return -int(cls[2:]) if cls.startswith("NV") else DISTANCE.get(cls, 0)


def _damage(table: _Table, matrix: tuple[tuple[str | None, ...], ...]) -> Iterator[Damage]:
    header = table.block.header
    if not table.block.named:
        seen, wanted = f"{len(header.gpus)} GPUs in the rows", "a line that names the columns"
        yield Damage(SUBJECT.warns("topology.header-lost", seen, wanted, extra=len(header.nics)))
    rows, wrong = _of_rows(table, matrix)
    if rows is not None:
        yield Damage(rows, tuple(row.line for row in wrong) or (1,))
    short = [row for row in table.rows.values() if row.label in header.gpus and not is_whole(row, header)]
    if short:
        cut = (f"line {row.line}: {row.label} has {len(row.cells.values)} cells" for row in short)
        seen, wanted = f"{len(short)} GPU rows break off", f"{len(header.labels)} cells in each"
        finding = SUBJECT.with_evidence(*cut).warns("topology.rows-cut", seen, wanted)
        yield Damage(finding, tuple(row.line for row in short))
    differing = [
        f"{a}-{b}: {there} in row {a}, {back} in row {b}"
        for a, b in combinations(header.labels, 2)
        if (there := table.printed(a, b)) and (back := table.printed(b, a)) and there != back
    ]
    if differing:
        seen = f"{len(differing)} cells contradict their mirror image"
        yield Damage(SUBJECT.with_evidence(*differing).warns("topology.cells-contradict", seen, "a symmetric matrix"))
    present = sum(nic in table.rows for nic in header.nics)
    if present < len(header.nics):
        yield Damage(SUBJECT.skips("topology.nic-rows-missing", f"{present} NIC rows", f"{len(header.nics)} NIC rows"))


def _of_rows(table: _Table, matrix: tuple[tuple[str | None, ...], ...]) -> tuple[Finding | None, list[Row]]:
    """What is wrong with rows, and the rows."""
    gpus = table.block.header.gpus
    missing = [gpu for gpu in gpus if gpu not in table.rows]
    holes = sum(cell is None for row in matrix for cell in row) // 2
    unexpected = [row for row in table.rows.values() if row.cells.unexpected]
    wrong = [*table.damaged, *unexpected, *table.twice, *table.block.strangers]
    subject = SUBJECT.with_evidence(*(_in_words(row, table) for row in wrong[:16]))
    seen, wanted = f"{len(gpus) - len(missing)} GPU rows", f"{len(gpus)} GPU rows"
    if holes and missing:
        return subject.unknown("topology.rows-lost", seen, wanted, rows=tuple(missing), pairs=holes), wrong
    if holes:
        return subject.unknown("topology.cells-lost", seen, wanted, pairs=holes), wrong
    if missing:
        return subject.warns("topology.rows-recovered", seen, wanted, rows=tuple(missing)), wrong
    if wrong:
        seen, wanted = f"{len(wrong)} damaged or surplus rows", "one row of path classes for each column"
        return subject.warns("topology.rows-damaged", seen, wanted), wrong
    return None, wrong


def _in_words(row: Row, table: _Table) -> str:
    if row in table.block.strangers:
        return f"line {row.line}: {row.label} is not among the columns"
    if row in table.twice:
        return f"line {row.line}: a second row for {row.label}"
    if row.cells.unexpected:
        return f"line {row.line}: {row.label} holds {', '.join(row.cells.unexpected[:4])}, which is not a path class"
    return f"line {row.line}: the cells of {row.label} are shifted or missing"


# In a table of Markdown a tab parts the two.
LEGEND_LINE = regex(
    r"[\s*]*(?:(?:NIC )?Legend\b|Symbol\t|(?:X|SYS|SOC|NODE|PHB|PXB|PIX|NV#|NIC\d{1,4})(?:\s{0,8}[=:]\s|\t))"
)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Every matrix, with the legend below it; without any, rows that lost the line that names the columns."""
    found = list(blocks(list(lines)))
    if not found:
        yield from spans(lines, GPU_ROW, GPU_ROW)
    for block in found:
        if block.is_p2p_status:
            continue
        last = end = min(block.end, len(lines)) - 1
        while end + 1 < len(lines) and (not lines[end + 1].strip() or LEGEND_LINE.match(lines[end + 1])):
            end += 1
            last = end if lines[end].strip() else last
        yield block.line - 1, last


KIND = Kind(
    "nvidia-smi-topo",
    "the output of nvidia-smi topo -m",
    parse,
    loose=True,
    hints=("GPU",),
    blocks=_blocks,
)


# nvidia-smi topo -p2p: whether the driver lets one GPU read (r) or write (w) another's memory, and more.
STATUS = "OK|CNS|GNS|TNS|NS|DR|U"
HEADER = regex(r"^[\s|]*GPU\d{1,3}(?:[\s|]+GPU\d{1,3})*[\s|]*$")
ROW = regex(rf"^[\s|]*GPU(\d{{1,3}})((?:[\s|]+(?:X|{STATUS}|N/A|\?|ERR!?))+)[\s|]*$")
STATUS_CELL = regex(rf"(?<!\w)(?:{STATUS})(?!\w)")
LEGEND = regex(r"^\s*(?:Legend:|(?:X|OK|CNS|GNS|TNS|NS|DR|U)\s{0,6}=\s)")
COMMAND = regex(r"-p2p\s{1,4}-?([rwnap]{1,5})\b")
MOST_GPUS = 128
MOST_ABOVE = 4  # lines between the command and the table
KINDS = {"r": "read access", "w": "write access", "n": "NVLink access", "a": "atomic operations", "p": "PCIe access"}


def p2p_parse(lines: list[str]) -> Part | None:
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


def _p2p_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
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


P2P = Kind(
    "nvidia-smi-topo-p2p",
    "the output of nvidia-smi topo -p2p",
    p2p_parse,
    hints=("GPU0", "GPU1"),
    blocks=_p2p_blocks,
)
