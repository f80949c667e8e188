"""Tables with two columns as dcgmi prints them, with the cells that it wrapped put together again."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._blocks import with_lines_above
from gpucheck.imports._regex import regex

ROW = regex(r"^\s{0,8}\|(?P<label>[^|]{1,40})\|(?P<text>[^|]{0,120})\|?\s*$")
RULE = regex(r"^\s{0,8}[|+](?:[-=]{3,}[+|]){1,3}[-=|+]{0,120}\s*$")
WRAPPED = 45  # characters of a cell that dcgmi diag fills before it goes on in the next line, without a blank
CELL = 48
LONGEST = 20_000  # characters of a text that are kept
ENTITY = regex(r"^(?:GPU|CPU|NvSwitch|Switch)s? ?\d{1,3}: ?(?:Pass|Fail|Warn|Skip|Not Run)", re.IGNORECASE)


class Row(NamedTuple):
    """A label and its text. line: where it begins. depth: of an arrow before the label (dcgmi health)."""

    label: str
    text: str
    line: int
    depth: int = 0


def rows(lines: Iterable[str], *, by_words: bool = False) -> Iterator[Row]:
    """Every row; a row without a label continues the previous one, unless it is a separate result.

    by_words: cells were wrapped between words (dcgmi health), not at a width (dcgmi diag).
    """
    now: Row | None = None
    full = False
    for number, line in enumerate(lines, start=1):
        match = ROW.match(line)
        if match is None:
            continue
        label, cell = match["label"], match["text"]
        text = cell.strip()
        if not label.strip() and now is not None and not ENTITY.match(text):
            if len(now.text) > LONGEST:
                continue
            is_wide = len(cell) == CELL and full and not by_words
            now = now._replace(text=now.text + cell[1:].rstrip() if is_wide else f"{now.text} {text}".strip())
            now = now._replace(text=now.text + " " if is_wide and _ends_blank(cell) else now.text)
            full = _is_full(cell)
            continue
        if now is not None:
            yield now
        name = label.replace("->", "").strip() or "result"
        depth = label.find("->") + 1
        now = Row(name, text + (" " if _ends_blank(cell) and _is_full(cell) else ""), number, depth)
        full = _is_full(cell)
    if now is not None:
        yield now


def _is_full(cell: str) -> bool:
    return len(cell) == CELL and len(cell[1:].rstrip()) >= WRAPPED - 1


def _ends_blank(cell: str) -> bool:
    """The last character that fits is a blank, which the text had."""
    return len(cell) == CELL and len(cell[1:].rstrip()) == WRAPPED - 1


def framed(lines: Sequence[str], found: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same stretches with the rule above the first line of each."""
    return with_lines_above(lines, found, RULE.match)
