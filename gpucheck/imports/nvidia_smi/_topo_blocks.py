"""Find the matrices in a paste: a header line, the rows that belong to it, and whatever text is in between."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from gpucheck.imports._text import regex

CLASS = r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|X"
# "?" is how our own text view writes a gap; nvidia-smi writes N/A or ERR! for a cell it could not fill.
CELL = regex(rf"(?P<known>{CLASS})(?![a-z_])|(?P<gap>\?|N/A|ERR!?)|(?P<unexpected>[A-Z][A-Z0-9]{{1,7}}!?)(?![\w/])")
BLANK = regex(r"[\s|]*")
P2P_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"})
CPU_LIST = regex(r"\d+(?:[-,]\d+)*,?")
MOST_NVLINKS = 36
MOST_JOINS = 4


@dataclass(frozen=True)
class Cells:
    """The content of one row.

    values: read left to right, None for a gap, shorter than the matrix where the row breaks off.
    unexpected: words in class cells that are no class (their value is None). rest: the text after the last cell.
    rest_at: column of rest in the physical line, tabs expanded to 8; None where the row was wrapped.
    """

    values: tuple[str | None, ...]
    unexpected: tuple[str, ...]
    rest: str
    rest_at: int | None = None

    @property
    def surplus(self) -> bool:
        """More classes follow than the header has columns: a label of the header got lost."""
        match = CELL.match(self.rest, _skip(self.rest, 0))
        return match is not None and match["known"] is not None

    @property
    def is_p2p_status(self) -> bool:
        """The row is from ``topo -p2p``, whose cells are statuses and no classes."""
        return any(word in P2P_STATUS for word in self.unexpected)


def scan(text: str, columns: int, counts: frozenset[str]) -> Cells:
    """Up to `columns` class cells from the front of `text`. counts: NVLink counts seen standing alone (``NV12``)."""
    values: list[str | None] = []
    unexpected: list[str] = []
    at = 0
    while len(values) < columns:
        at = _skip(text, at)
        match = CELL.match(text, at)
        if match is None:
            break
        at = match.end()
        word = match["known"]
        if word is None:
            values.append(None)
            unexpected += [match["unexpected"]] if match["unexpected"] else []
        elif word.startswith("NV"):
            word = _nvlinks(word, text[at : at + 1], counts)
            at = match.start() + len(word)
            values.append(word)
        else:
            values.append("SYS" if word == "SOC" else word)
    return Cells(tuple(values), tuple(unexpected), text[at:])


def _skip(text: str, at: int) -> int:
    blank = BLANK.match(text, at)
    return blank.end() if blank else at


def _nvlinks(word: str, following: str, counts: frozenset[str]) -> str:
    """``NV12`` out of ``NV120`` when a CPU list is glued to it (``NV120-23``). One GPU has at most 36 links."""
    glued = following in ("-", ",") and following != ""
    if not glued and int(word[2:6]) <= MOST_NVLINKS:
        return word
    # What stays behind must still be a number, so a list that begins with "-" rules a split out.
    fits = [word[:end] for end in (4, 3) if len(word) > end - (not glued) and int(word[2:end]) <= MOST_NVLINKS]
    return next((fit for fit in fits if fit in counts), fits[0] if fits else word)


def joined(parts: list[str]) -> Iterator[str]:
    """Every way to put a wrapped line together again: each break fell between two cells or inside one.

    A part that begins with a blank was not cut inside a cell. Beyond a few breaks only the two uniform ways are tried.
    """
    ways = [(" ",) if part[:1].isspace() else (" ", "") for part in parts[1:]]
    if len(ways) <= MOST_JOINS:
        combinations: Iterator[tuple[str, ...]] = product(*ways)
    else:
        combinations = iter([tuple(way[0] for way in ways), tuple(way[-1] for way in ways)])
    for glue in combinations:
        yield parts[0] + "".join(g + part for g, part in zip(glue, parts[1:], strict=True))


def affinity(cells: Cells, columns: tuple[str, ...], cpu_at: int | None) -> dict[str, str | None]:
    """The affinity cells after the classes, by column name (``cpu numa gpu_numa_id``); blank is None.

    cpu_at: column where the header writes "CPU Affinity", tabs expanded, None where it was wrapped.
    nvidia-smi prints one tab before CPU, one before NUMA and two before the GPU's NUMA id, so that a blank cell can
    be recognized by tabs, and by its position once the tabs have become spaces.
    """
    rest = re.sub(r", +(?=\d)", ",", cells.rest.replace("|", " "))
    fields = [field.strip() for field in rest.split("\t")]
    if len(fields) > 1 and not any(" " in field for field in fields):
        given = [field for field in fields if field]
        if len(given) < len(columns):
            fields = fields[1:] if not fields[0] else fields
            given = [*fields[:2], next((f for f in fields[2:] if f), "")]
        return _named(given, columns)
    tokens = rest.split()
    if len(tokens) >= len(columns):
        return _named(tokens, columns)
    return _named(_place(tokens, rest, cells.rest_at, cpu_at, columns), columns)


def _place(
    tokens: list[str], rest: str, rest_at: int | None, cpu_at: int | None, columns: tuple[str, ...]
) -> list[str]:
    if not tokens:
        return []
    if rest_at is not None and cpu_at is not None:
        # A tab stop is 8 wide: a value further right than that is not under "CPU Affinity" any more.
        has_cpu = rest_at + len(rest) - len(rest.lstrip()) - cpu_at < 8 and tokens[0] != "N/A"
    else:
        has_cpu = "-" in tokens[0] or "," in tokens[0]
    cpu = tokens.pop(0) if has_cpu else ""
    if len(tokens) == 1 and tokens[0] == "N/A" and "gpu_numa_id" in columns:
        return [cpu, "", tokens[0]]
    return [cpu, *tokens]


def _named(values: list[str], columns: tuple[str, ...]) -> dict[str, str | None]:
    return {
        name: value
        for name, value in zip(columns, values, strict=False)
        if CPU_LIST.fullmatch(value) or (name == "gpu_numa_id" and value == "N/A")
    }


MOST_COLUMNS = 512
MOST_GPUS = 72
MOST_WRAPS = 6
MOST_TEXT_BETWEEN_ROWS = 20
MOST_TRIES = 1000

HEADER = regex(r"(?<![A-Za-z0-9])GPU\d{1,4}(?!\d)")
GLUED_LABELS = regex(r"(?:GPU\d{1,4}|NIC\d{1,4})+")
LABEL = regex(r"GPU\d{1,4}|NIC\d{1,4}")
# mlx5_0, mlx5_bond_0, rocep49s0, hfi1_0, ibp12s0: a network device's name has a digit and starts with a letter.
NIC_NAME = regex(r"(?=[^\d]*\d)[A-Za-z][A-Za-z0-9_.\-]{1,30}")
AFFINITY = {
    "cpu": regex(r"CPU\s*Affinity"),
    "numa": regex(r"NUMA\s*Affinity"),
    "gpu_numa_id": regex(r"GPU\s*NUMA\s*ID"),
}
ROW_CELL = rf"[\s|]*(?:(?:{CLASS})(?![a-z_])|\?|N/A|(?:OK|CNS|GNS|TNS|DR|NS|U)(?!\w))"
GPU_ROW = regex(rf"(?<![A-Za-z0-9_.\-])GPU\d{{1,4}}{ROW_CELL}")
LEGEND = regex(r"\W*(?:NIC )?Legend\b")
# A cut-off piece of a row has nothing but capitals, digits and the signs of CPU lists; a prompt or prose has more.
CONTINUATION = regex(r"[\s|0-9A-Z/,?\-]*")
WORD = regex(r"[0-9A-Z]")


@dataclass(frozen=True)
class Header:
    """Column labels in printed order; affinity columns by our names; cpu_at as in `affinity`."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    affinities: tuple[str, ...]
    cpu_at: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return self.gpus + self.nics

    @property
    def width(self) -> int:
        return len(self.labels) + len(self.affinities)


@dataclass(frozen=True)
class Row:
    """One row with its first line's number (1-based)."""

    label: str
    line: int
    cells: Cells


@dataclass(frozen=True)
class Block:
    """A header (with its 1-based line), its rows in printed order, and the index of the first line after them.

    named: whether a line names the columns; else they follow from the rows.
    """

    header: Header
    line: int
    rows: tuple[Row, ...] = ()
    strangers: tuple[Row, ...] = ()
    end: int = 0
    good: int = field(default=0, compare=False)
    named: bool = True

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
            block = _without_header(lines, row)
            after = block.end if block else row + 1
            if block:
                yield block
        tries += 1
        if tries > MOST_TRIES:
            return


def _gpu_rows(lines: list[str]) -> Iterator[int]:
    return (index for index, line in enumerate(lines) if "GPU" in line and GPU_ROW.search(line))


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


def _without_header(lines: list[str], first: int) -> Block | None:
    """The matrix that begins with this row and whose header is lost: column i is that of the row with X at i.

    A column without a row is a GPU's if it has an NVLink class, else that of a network card. None for fewer than two
    rows, and where the diagonal does not fit the labels.
    """
    every = _read_rows(lines, first - 1, Header(tuple(f"GPU{i}" for i in range(MOST_GPUS)), (), ()), first)
    rows = [(int(row.label[3:]), _without_gaps(row.cells.values)) for row in every.rows]
    if (
        every.is_p2p_status
        or len(rows) < 2
        or any([i for i, cell in enumerate(cells) if cell == "X"] != [place] for place, cells in rows)
    ):
        return None
    width, count = max(len(cells) for _, cells in rows), max(place for place, _ in rows) + 1
    linked = [i for _, cells in rows for i, cell in enumerate(cells) if cell and cell.startswith("NV")]
    count = max(count, *(i + 1 for i in linked)) if linked else count
    gpus = tuple(f"GPU{i}" for i in range(count))
    header = Header(gpus, tuple(f"NIC{i}" for i in range(width - count)), tuple(AFFINITY))
    block = _read_rows(lines, first - 1, header, first)
    return replace(block, line=first + 1, named=False) if block.good > 1 else None


def _without_gaps(cells: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Without the gaps at the end: N/A there may be an affinity."""
    end = max((i + 1 for i, cell in enumerate(cells) if cell), default=0)
    return cells[:end]


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
    start = regex(rf"(?<![A-Za-z0-9_.\-])({'|'.join(['GPU[0-9]{1,4}', *labels])})(?={ROW_CELL})")
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
