"""Stretches of lines that belong together: from a line that only one tool prints to the last that fits it."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpucheck.imports._regex import regex

MOST_OBJECTS = 200


def spans(
    lines: Sequence[str], begin: re.Pattern[str], inside: re.Pattern[str], again: re.Pattern[str] | None = None
) -> Iterator[tuple[int, int]]:
    """First and last index of each stretch: from a line that matches `begin` over lines that match `inside`.

    Blank lines are inside, and not at the end. again: a line that begins a stretch of its own, such as a tool's first
    line of output. Patterns are searched, not matched. Linear in the input.
    """
    first = last = -1
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        if first >= 0 and (again is None or not again.search(line)) and (inside.search(line) or begin.search(line)):
            last = at
            continue
        if first >= 0:
            yield first, last
            first = -1
        if begin.search(line):
            first = last = at
    if first >= 0:
        yield first, last


def with_lines_above(
    lines: Sequence[str], found: Iterable[tuple[int, int]], belongs: Callable[[str], object]
) -> Iterator[tuple[int, int]]:
    """The same stretches, each with the lines directly above it that belong to it. Overlapping ones are omitted."""
    last = -1
    for first, end in found:
        if first <= last:
            continue
        while first - 1 > last and belongs(lines[first - 1]):
            first -= 1
        yield first, end
        last = end


def until(lines: Sequence[str], begins: Callable[[str], object], *ends: str) -> Iterator[tuple[int, int]]:
    """First and last index of each stretch from a line that begins one to a line that holds one of these texts.

    One that is cut short reaches to the end of the lines.
    """
    first: int | None = None
    for at, line in enumerate(lines):
        if first is None and begins(line):
            first = at
        if first is not None and any(end in line for end in ends):
            yield first, at
            first = None
    if first is not None:
        yield first, len(lines) - 1


def objects(lines: Sequence[str], *marks: str) -> Iterator[tuple[int, int]]:
    """First and last index of every JSON object that begins a line and holds one of these marks.

    A brace in a string counts as none. One that is cut short reaches to the end of the lines.
    """
    at = tries = 0
    while at < len(lines):
        if not lines[at].lstrip().startswith("{") or tries >= MOST_OBJECTS:
            at += 1
            continue
        tries += 1
        end = _end_of(lines, at)
        if any(mark in line for line in lines[at : end + 1] for mark in marks):
            yield at, end
        at = end + 1


STRING_OR_BRACE = regex(r'"(?:[^"\\]|\\.)*"|[{}]')


def _end_of(lines: Sequence[str], start: int) -> int:
    depth = 0
    for at in range(start, len(lines)):
        for found in STRING_OR_BRACE.findall(lines[at]):
            depth += 1 if found == "{" else -1 if found == "}" else 0
        if depth <= 0:
            return at
    return len(lines) - 1
