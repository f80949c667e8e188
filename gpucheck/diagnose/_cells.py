"""Cells, lists and blocks of observations: small readers that the description of the whole is made of.

Each takes a value of the document and raises ObservationProblem, with its line, for what it cannot be.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from gpucheck.knowledge.strict import Value

T = TypeVar("T")

MOST_GPUS = 128  # of one NVLink domain there are 72; the time that rules take grows with the square
MOST_NAME = 200
MOST_ROWS = 1024
MOST_COUNT = 1 << 60
CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,2}")
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
DIAGONAL = {"x", "-", ""}


def struct(type_: type[T], **readers: Callable[[Value], Any]) -> Callable[[Value], T]:
    def build(value: Value) -> T:
        return type_(**value.fields(readers))

    return build


def whole(low: int, high: int) -> Callable[[Value], int]:
    return lambda value: value.integer(low, high)


def one_of(*known: str) -> Callable[[Value], str]:
    return lambda value: value.word(*known)


def list_of(reader: Callable[[Value], T], most: int = MOST_ROWS) -> Callable[[Value], tuple[T, ...]]:
    return lambda value: tuple(reader(item) for item in value.items(most))


def matrix(cell: Callable[[Value], Any]) -> Callable[[Value], tuple[tuple[Any, ...], ...]]:
    """n x n, the diagonal None whatever it holds."""

    def read_matrix(value: Value) -> tuple[tuple[Any, ...], ...]:
        rows = [row.items(MOST_GPUS) for row in value.items(MOST_GPUS)]
        if not rows:
            raise value.problem("is empty. Write null for not measured")
        for i, row in enumerate(rows):
            if len(row) != len(rows):
                raise Value(value.node.value[i], f"{value.path}[{i}]").problem(
                    f"has {len(row)} cells, but there are {len(rows)} rows: the matrix must be square"
                )
        return tuple(
            tuple(None if i == j or not item.is_known else cell(item) for j, item in enumerate(row))
            for i, row in enumerate(rows)
        )

    return read_matrix


def required(build: Callable[[Value], T], *names: str) -> Callable[[Value], T]:
    """Reject an entry that lacks one of these keys."""

    def read_entry(value: Value) -> T:
        known = {name for name, cell in value.pairs() if cell.is_known}
        missing = [name for name in names if name not in known]
        if missing:
            raise value.problem(f"needs {' and '.join(missing)}")
        return build(value)

    return read_entry


def product_name(value: Value) -> str:
    """A product's name; patterns are searched in it."""
    if len(name := value.text()) > MOST_NAME:
        raise value.problem(f"has {len(name)} characters, more than the {MOST_NAME} of a name")
    return name


def measured_cell(value: Value) -> float | None:
    """A tool prints 0.00 for a pair that it did not measure."""
    if value.text().strip().lower() in DIAGONAL:
        return None
    return value.number() or None


def part_cell(value: Value) -> float | None:
    """An uncertainty as a part of the number."""
    if value.text().strip().lower() in DIAGONAL:
        return None
    if (part := value.number()) > 1:
        raise value.problem("is not between 0 and 1. Write 0.03 for 3 %")
    return part


def flag_cell(value: Value) -> bool | None:
    return None if value.text().strip().lower() in DIAGONAL else bit(value)


def class_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if not CLASS.fullmatch(word):
        raise value.problem(f"{word[:20]} is not a path class (NV#, PIX, PXB, PHB, NODE, SYS)")
    return "SYS" if word == "SOC" else None if word == "X" else word


def status_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if word in ("X", "U"):
        return None
    if word not in STATUS:
        raise value.problem(f"{word[:20]} is not a P2P status ({', '.join(STATUS)})")
    return word


def bit(value: Value) -> bool:
    """Tools print 1 and 0."""
    return value.text() == "1" if value.text() in ("0", "1") else value.flag()


def gpu_pair(value: Value) -> tuple[int, int]:
    ends = [item.integer(0, MOST_GPUS - 1) for item in value.items(2)]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise value.problem("must name two different GPUs: [source, destination]")
    return ends[0], ends[1]


def counters(value: Value) -> dict[str, int]:
    return {name: cell.integer(0, MOST_COUNT) for name, cell in value.pairs() if cell.is_known}
