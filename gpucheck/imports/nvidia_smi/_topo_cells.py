"""The cells of one row of an ``nvidia-smi topo -m`` matrix, whole, glued to their neighbour, or cut by a line break."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

CLASS = r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|X"
# "?" is how our own text view writes a gap; nvidia-smi writes N/A or ERR! for a cell it could not fill.
CELL = re.compile(
    rf"(?P<known>{CLASS})(?![a-z_])|(?P<gap>\?|N/A|ERR!?)|(?P<unexpected>[A-Z][A-Z0-9]{{1,7}}!?)(?![\w/])"
)
BLANK = re.compile(r"[\s|]*")
P2P_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"})
CPU_LIST = re.compile(r"\d+(?:[-,]\d+)*,?")
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
    """Fewer values than columns: find out which are blank."""
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
