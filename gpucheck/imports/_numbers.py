"""Tables of numbers as benchmark tools print them: column and row labels, cells, and what a cell may not be."""

import math
import re
from collections.abc import Sequence

from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import quoted
from gpucheck.model.diagnosis.observations import Matrix

MOST_GPUS = 64
CELL = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
GROWN = re.compile(r"(?:\d{1,6}\.\d\d){2,64}")  # cells of two decimals without a blank between them
TWO = re.compile(r"\d{1,6}\.\d\d")
NOT_MEASURED = {"n/a", "x", "-", "--"}
LARGEST, SMALLEST = 1e12, 1e-9
NOT_SQUARE = "not a square table"
AGAIN = "Paste the complete output of the run again"


def refuse_gib(line: str, number: int) -> None:
    """Raise ImportProblem for a heading with GiB/s: these tools print GB/s, so the text was converted."""
    if re.search(r"\bGiB\b", line):
        raise ImportProblem(
            "bandwidth in GiB/s",
            where=f"line {number}",
            why=f"{quoted(line)} is not in GB/s (10**9 bytes/s), which the tool prints",
            do="Multiply by 1.0737, or paste the tool's own output",
        )


def cell(word: str, where: str) -> float | None:
    """Return a measurement, None if the tool printed that it has none. Raises ImportProblem for NaN and the like."""
    if word.lower() in NOT_MEASURED:
        return None
    number = float(word) if CELL.match(word) else math.nan
    if not math.isfinite(number) or not 0 <= number < LARGEST:
        raise ImportProblem(
            "a value that is not a measurement", where=where, why=f"{quoted(word)} is not a bandwidth or time", do=AGAIN
        )
    return number if number >= SMALLEST else None


def table(lines: Sequence[str], start: int, what: str) -> tuple[Matrix, int]:
    """Return the table whose column labels (0 1 2 ...) are in line `start` (0-based), and the line after it.

    Cells may be parted by blanks or tabs. Lines that a terminal broke are joined where the cells add up, and cells of
    two decimals that grew together are parted. A missing or surplus row or cell raises ImportProblem.
    """
    heads, at = _heads(lines, start)
    if not heads or [int(head) for head in heads] != list(range(len(heads))) or len(heads) > MOST_GPUS:
        raise _shape(what, start, f"{quoted(lines[start])} does not number the GPUs 0, 1, 2, ...")
    rows: list[tuple[float | None, ...]] = []
    while at < len(lines) and len(rows) < len(heads):
        words, end = _row(lines, at, len(heads) + 1)
        if not words or words[0] != str(len(rows)):
            break
        if len(words) != len(heads) + 1:
            raise _shape(what, at, f"{len(words) - 1} cells in the row, {len(heads)} in the heading")
        rows.append(tuple(cell(word, f"line {at + 1}") for word in words[1:]))
        at = end
    return tuple(rows), at


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


def square(rows: Matrix, at: int, what: str) -> Matrix:
    """Return the table if it has a row for each column. The diagonal is None: a GPU has no path to itself."""
    if not rows or len(rows) != len(rows[0]):
        columns = len(rows[0]) if rows else 0
        raise _shape(what, at, f"{len(rows)} rows of {columns} columns; the paste is cut short")
    return tuple(tuple(None if i == j else value for j, value in enumerate(row)) for i, row in enumerate(rows))


def transposed(matrix: Matrix) -> Matrix:
    """Rows and columns swapped."""
    return tuple(zip(*matrix, strict=True))


def is_cut_short(problem: ImportProblem) -> bool:
    """Whether the end of a table is missing, and not something in it wrong."""
    return problem.what.endswith((NOT_SQUARE, "a heading without a table"))


def _shape(what: str, at: int, why: str) -> ImportProblem:
    return ImportProblem(f"{what}: {NOT_SQUARE}", where=f"line {at + 1}", why=why, do=AGAIN)
