"""Tables of numbers as benchmark tools print them: column and row labels, cells, and what a cell may not be."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.imports._text import ImportProblem, left_out, quoted, regex
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.diagnosis.observations import Matrix

MOST_GPUS = 64
CELL = regex(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
GROWN = regex(r"(?:\d{1,6}\.\d\d){2,64}")  # cells of two decimals without a blank between them
TWO = regex(r"\d{1,6}\.\d\d")
NOT_MEASURED = {"n/a", "x", "-", "--"}
LARGEST, SMALLEST = 1e12, 1e-9
AGAIN = "Paste the complete output of the run again"


def refuse_gib(line: str, number: int) -> None:
    """Raise ImportProblem for a heading with GiB/s: these tools print GB/s, so the text was converted."""
    if re.search(r"\bGiB\b", line):
        raise ImportProblem(
            "bandwidth in GiB/s",
            line=number,
            why=f"{quoted(line)} is not in GB/s (10**9 bytes/s), which the tool prints",
            do="Multiply by 1.0737, or paste the tool's own output",
        )


def cell(word: str, line: int | None = None) -> float | None:
    """Return a measurement, None if the tool printed that it has none. Raises ImportProblem for NaN and the like."""
    if word.lower() in NOT_MEASURED:
        return None
    number = float(word) if CELL.match(word) else math.nan
    if not math.isfinite(number) or not 0 <= number < LARGEST:
        raise ImportProblem(
            "a value that is not a measurement", line=line, why=f"{quoted(word)} is not a bandwidth or time", do=AGAIN
        )
    return number if number >= SMALLEST else None


class Grid(NamedTuple):
    """A printed table. rows: from the first on, None cells where a row is missing or cut; end: index of the next line.

    lost: what of it cannot be read, empty if all of it can.
    """

    rows: Matrix
    end: int
    lost: str = ""


def table(lines: Sequence[str], start: int, what: str) -> Grid:
    """Return the table whose column labels (0 1 2 ...) are in line `start` (0-based).

    Cells may be parted by blanks or tabs. Lines that a terminal broke are joined where the cells add up, and cells of
    two decimals that grew together are parted. A row that is cut or missing has no cells; a surplus row or cell, and a
    table without any row, raise ImportProblem.
    """
    if start >= len(lines):
        raise _shape(what, start - 1, "nothing follows the heading; the paste is cut short")
    heads, at = _heads(lines, start)
    if not heads or [int(head) for head in heads] != list(range(len(heads))) or len(heads) > MOST_GPUS:
        raise _shape(what, start, f"{quoted(lines[start])} does not number the GPUs 0, 1, 2, ...")
    found, end = _rows(lines, at, len(heads) + 1)
    if found and max(found) >= len(heads):
        raise _shape(what, start, f"a row {max(found)}, {len(heads)} columns in the heading")
    for label, words in found.items():
        if len(words) > len(heads) + 1:
            raise _shape(what, at, f"{len(words) - 1} cells in row {label}, {len(heads)} in the heading")
    places = [_decimals(word) for words in found.values() for word in words[1:-1] if CELL.match(word)]
    rows: list[tuple[float | None, ...]] = []
    lost = []
    for label in range(max(found, default=-1) + 1):
        words = found.get(label, [])
        if len(words) == len(heads) + 1 and not _is_cut(words[-1], min(places, default=0)):
            rows.append(tuple(cell(word, start + 1) for word in words[1:]))
        else:
            rows.append((None,) * len(heads))
            lost.append(label)
    if len(lost) == len(rows):
        raise _shape(what, start, f"{len(heads)} columns and no complete row; the paste is cut short")
    return Grid(tuple(rows), end, f"no complete row {listed(lost)}" if lost else "")


def listed(labels: Sequence[int]) -> str:
    return ", ".join(map(str, labels[:8])) + (", ..." if len(labels) > 8 else "")


def _rows(lines: Sequence[str], at: int, width: int) -> tuple[dict[int, list[str]], int]:
    """The words of each row by its label, which rises; and the line after the last. One blank line is a lost row."""
    found: dict[int, list[str]] = {}
    end, gap = at, False
    while at < len(lines) and len(found) <= width:
        words, after = _row(lines, at, width)
        if words and (not words[0].isdecimal() or len(words[0]) > 3 or int(words[0]) <= max(found, default=-1)):
            break
        if not words and (gap or not found):
            break
        gap, at = not words, after
        if words:
            found[int(words[0])], end = words, at
    return found, end


def _decimals(word: str) -> int:
    return len(word.partition(".")[2])


def _is_cut(word: str, decimals: int) -> bool:
    """Whether the last cell of a row lost its end: a number with fewer decimals than all others, or part of ``N/A``."""
    return word.upper() in ("N", "N/") or (CELL.match(word) is not None and _decimals(word) < decimals)


def _heads(lines: Sequence[str], start: int) -> tuple[list[str], int]:
    """The column labels, and the line after them: those of a broken line go on counting, and no cell is among them."""
    heads = [word for word in lines[start].split() if word.isdecimal()]
    at = start + 1
    while heads and at < len(lines):
        words = lines[at].split()
        if words != [str(len(heads) + i) for i in range(len(words))] or not words or len(heads) > MOST_GPUS:
            break
        heads += words
        at += 1
    return heads, at


def _row(lines: Sequence[str], start: int, wanted: int) -> tuple[list[str], int]:
    """The words of a row, and the line after it. A line that begins with a cell, not with a label, continues it."""
    words, at = _parted(lines[start].split(), wanted), start + 1
    while 1 < len(words) < wanted and at < len(lines):
        more = lines[at].split()
        if not more or more[0].isdecimal() or not all(_is_cell(word) for word in more) or len(words + more) > wanted:
            break
        words, at = words + more, at + 1
    return words, at


def _parted(words: list[str], wanted: int) -> list[str]:
    if len(words) >= wanted or len(words) < 2:
        return words
    apart = [part for word in words[1:] for part in (TWO.findall(word) if GROWN.fullmatch(word) else (word,))]
    return [words[0], *apart]


def _is_cell(word: str) -> bool:
    return word.lower() in NOT_MEASURED or CELL.match(word) is not None


def square(grid: Grid) -> Grid:
    """Return the table with a row for each column. The diagonal is None: a GPU has no path to itself."""
    count = len(grid.rows[0])
    missing = range(len(grid.rows), count)
    rows = (*grid.rows, *((None,) * count for _ in missing))
    lost = [grid.lost, f"no row {listed(missing)}" if missing else ""]
    return Grid(
        tuple(tuple(None if i == j else value for j, value in enumerate(row)) for i, row in enumerate(rows)),
        grid.end,
        " and ".join(filter(None, lost)),
    )


class Tables(NamedTuple):
    """grids: by the index of their headings. unread: what cannot be read; broken: the first table of it.

    why: of the first of unread, empty without any.
    """

    grids: dict[int, Grid]
    unread: tuple[UnreadRange, ...]
    broken: ImportProblem | None
    why: str


def tables(lines: Sequence[str], heads: Iterable[tuple[int, str, bool]], devices: int) -> Tables:
    """Return the table below each heading: its index, its name, and whether rows and columns are the same GPUs.

    devices: how many GPUs are named; 0 = none, then the first table has as many.
    """
    found: dict[int, Grid] = {}
    unread: list[UnreadRange] = []
    broken: ImportProblem | None = None
    reasons: list[str] = []
    for at, what, pairs in heads:
        try:
            refuse_gib(lines[at], at + 1)
            start = next((n for n in range(at + 1, min(at + 4, len(lines))) if lines[n].strip()), len(lines))
            grid = table(lines, start, what)
            grid = square(grid) if pairs else grid
            columns = len(grid.rows[0])
            devices = devices or columns
            if columns != devices:
                raise _shape(what, at, f"{columns} columns, {devices} GPUs in the other lines of the run")
        except ImportProblem as problem:
            broken = broken or problem
            reasons.append(f"{problem.what}: {problem.why}")
            unread.append(left_out(at + 1, at + 1, reasons[-1], lines[at]))
            continue
        if grid.lost:
            reasons.append(f"{what}: {grid.lost}")
            unread.append(left_out(at + 1, grid.end, f"{reasons[-1]}; what is there was read", lines[at]))
        found[at] = grid
    return Tables(found, tuple(unread), broken, next(iter(reasons), ""))


def _shape(what: str, at: int, why: str) -> ImportProblem:
    return ImportProblem(f"{what}: not a square table", line=at + 1, why=why, do=AGAIN)
