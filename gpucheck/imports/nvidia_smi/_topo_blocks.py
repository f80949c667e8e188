"""Find the matrices in a paste: a header line, the rows that belong to it, and whatever text is in between."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from gpucheck.imports.nvidia_smi._topo_cells import CLASS, Cells, joined, scan

MOST_COLUMNS = 512
MOST_WRAPS = 6
MOST_TEXT_BETWEEN_ROWS = 20
MOST_TRIES = 1000

HEADER = re.compile(r"(?<![A-Za-z0-9])GPU\d{1,4}(?!\d)")
GLUED_LABELS = re.compile(r"(?:GPU\d{1,4}|NIC\d{1,4})+")
LABEL = re.compile(r"GPU\d{1,4}|NIC\d{1,4}")
# mlx5_0, mlx5_bond_0, rocep49s0, hfi1_0, ibp12s0: a network device's name has a digit and starts with a letter.
NIC_NAME = re.compile(r"(?=[^\d]*\d)[A-Za-z][A-Za-z0-9_.\-]{1,30}")
AFFINITY = {
    "cpu": re.compile(r"CPU\s*Affinity"),
    "numa": re.compile(r"NUMA\s*Affinity"),
    "gpu_numa_id": re.compile(r"GPU\s*NUMA\s*ID"),
}
ROW_CELL = rf"[\s|]*(?:(?:{CLASS})(?![a-z_])|\?|N/A|(?:OK|CNS|GNS|TNS|DR|NS|U)(?!\w))"
GPU_ROW = re.compile(rf"(?<![A-Za-z0-9_.\-])GPU\d{{1,4}}{ROW_CELL}")
LEGEND = re.compile(r"\W*(?:NIC )?Legend\b")
# A cut-off piece of a row has nothing but capitals, digits and the signs of CPU lists; a prompt or prose has more.
CONTINUATION = re.compile(r"[\s|0-9A-Z/,?\-]*")
WORD = re.compile(r"[0-9A-Z]")


@dataclass(frozen=True)
class Header:
    """Column labels in printed order; affinity columns by our names; cpu_at as in `affinity`."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    affinities: tuple[str, ...]
    cpu_at: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """All columns that hold classes."""
        return self.gpus + self.nics

    @property
    def width(self) -> int:
        """All columns."""
        return len(self.labels) + len(self.affinities)


@dataclass(frozen=True)
class Row:
    """One row with its first line's number (1-based)."""

    label: str
    line: int
    cells: Cells


@dataclass(frozen=True)
class Block:
    """A header (with its 1-based line), its rows in printed order, and the index of the first line after them."""

    header: Header
    line: int
    rows: tuple[Row, ...] = ()
    strangers: tuple[Row, ...] = ()
    end: int = 0
    good: int = field(default=0, compare=False)

    @property
    def is_p2p_status(self) -> bool:
        """A ``topo -p2p`` matrix, which has the same form."""
        return any(row.cells.is_p2p_status for row in self.rows)


def blocks(lines: list[str]) -> Iterator[Block]:
    """Every matrix that has at least one GPU row, in order.

    Linear in the input: a header is only looked for in the few lines before a row, a block ends at the next header,
    and after MOST_TRIES places that were no matrix the rest is taken for noise.
    """
    tries, after = 0, 0
    for row in _gpu_rows(lines):
        if row < after:
            continue
        for at in range(max(after, row - MOST_WRAPS - 2), row):
            match = HEADER.search(lines[at])
            found = _readings(lines, at, match.start()) if match else []
            if found:
                best = max(found, key=lambda block: (block.good, block.header.width))
                after = max(best.end, row + 1)
                yield best
                break
        else:
            after = row + 1
        tries += 1
        if tries > MOST_TRIES:
            return


def _gpu_rows(lines: list[str]) -> Iterator[int]:
    return (index for index, line in enumerate(lines) if "GPU" in line and GPU_ROW.search(line))


def lone_header(lines: list[str]) -> int | None:
    """Return the 1-based line of the first header, for reports that its rows are missing."""
    candidates = (i for i, line in enumerate(lines) if "GPU" in line and HEADER.search(line))
    for index in islice(candidates, MOST_TRIES):
        line = lines[index]
        match = HEADER.search(line)
        header = parse_header(line[match.start() :], None) if match else None
        if header is not None and (len(header.gpus) > 1 or header.affinities):
            return index + 1
    return None


def lone_row(lines: list[str]) -> int | None:
    """Return the 1-based line of the first row, for reports that its header is missing."""
    index = next(_gpu_rows(lines), None)
    return None if index is None else index + 1


def _readings(lines: list[str], at: int, start: int) -> list[Block]:
    """Every way to read a matrix whose header begins here: the header line may have been wrapped."""
    parts, prefix = [lines[at][start:]], lines[at][:start]
    header = parse_header(parts[0], prefix)
    found = [_read_rows(lines, at, header, at + 1)] if header else []
    for index in range(at + 1, min(at + 1 + MOST_WRAPS, len(lines))):
        if not lines[index].strip() or GPU_ROW.search(lines[index]):
            break
        parts.append(lines[index])
        headers = (parse_header(text, None) for text in joined(parts))
        found += [_read_rows(lines, at, header, index + 1) for header in headers if header]
    return found


def parse_header(text: str, prefix: str | None) -> Header | None:
    """Return the columns that `text` names, None if it is not a header. prefix: the text before it on its line."""
    cpu = AFFINITY["cpu"].search(text)
    first = cpu or AFFINITY["numa"].search(text)
    labels: list[str] = []
    for token in re.split(r"[\s|,]+", text[: first.start()] if first else text):
        if GLUED_LABELS.fullmatch(token):
            labels += LABEL.findall(token)
        elif NIC_NAME.fullmatch(token):
            labels.append(token)
        elif token:
            return None
        if len(labels) > MOST_COLUMNS:
            return None
    gpus = tuple(label for label in labels if re.fullmatch(r"GPU\d+", label))
    if not gpus or len(set(labels)) != len(labels) or tuple(labels[: len(gpus)]) != gpus:
        return None
    if len({int(gpu[3:]) for gpu in gpus}) != len(gpus):
        return None  # GPU7 and GPU07
    tail = text[first.start() :] if first else ""
    present = tuple(name for name, pattern in AFFINITY.items() if pattern.search(tail))
    cpu_at = None if prefix is None or cpu is None else len((prefix + text[: cpu.start()]).expandtabs(8))
    return Header(gpus, tuple(labels[len(gpus) :]), present, cpu_at)


def _read_rows(lines: list[str], at: int, header: Header, first: int) -> Block:
    labels = sorted((re.escape(nic) for nic in header.nics), key=len, reverse=True)
    start = re.compile(rf"(?<![A-Za-z0-9_.\-])({'|'.join(['GPU[0-9]{1,4}', *labels])})(?={ROW_CELL})")
    rows: list[Row] = []
    strangers: list[Row] = []
    index, end, idle = first, first, 0
    while index < len(lines) and idle <= MOST_TEXT_BETWEEN_ROWS:
        line = lines[index]
        match = start.search(line)
        if match is None:
            if LEGEND.match(line) or HEADER.search(line):
                break
            idle += bool(line.strip())
            index += 1
            continue
        idle = 0
        follow = index + 1
        while follow < min(index + MOST_WRAPS, len(lines)) and _continues(lines[follow], start):
            follow += 1
        parts = [line[match.end() :], *lines[index + 1 : follow]]
        row = Row(match[1], index + 1, _best_cells(parts, header, match[1], line))
        (rows if row.label in header.labels else strangers).append(row)
        index = end = follow
    good = sum(is_whole(row, header) for row in rows)
    return Block(header, at + 1, tuple(rows), tuple(strangers), end, good)


def _continues(line: str, start: re.Pattern[str]) -> bool:
    cut_off = WORD.search(line) is not None and CONTINUATION.fullmatch(line) is not None
    return cut_off and "GPU" not in line and not start.search(line)


def _best_cells(parts: list[str], header: Header, label: str, line: str) -> Cells:
    """The reading of a row that fits its header best: a wrapped line can be put together in several ways."""
    counts = frozenset(re.findall(r"(?<!\w)NV\d{1,2}(?!\w)", " ".join(parts)))
    texts = (text for end in range(1, len(parts) + 1) for text in joined(parts[:end]))
    best = max((scan(text, len(header.labels), counts) for text in texts), key=lambda c: _fit(c, header, label))
    if len(parts) > 1:
        return best
    return replace(best, rest_at=len(line[: len(line) - len(best.rest)].expandtabs(8)))


def _fit(cells: Cells, header: Header, label: str) -> tuple[bool, int, int]:
    """Larger is better: a whole row, then few unknown words, then as many affinity values as there are columns."""
    surplus = len(cells.rest.split()) - len(header.affinities)
    return is_whole(Row(label, 0, cells), header), -len(cells.unexpected), -abs(surplus)


def is_whole(row: Row, header: Header) -> bool:
    """Every cell is there and none too many; the row crosses itself at its own column and nowhere else."""
    if row.label not in header.labels or row.cells.surplus:
        return False
    values = row.cells.values
    return len(values) == len(header.labels) and [i for i, v in enumerate(values) if v == "X"] == [
        header.labels.index(row.label)
    ]
