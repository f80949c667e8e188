"""Text on a terminal: findings are wrapped below their beginning, rows below their last column; commands are not."""

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import click

# "FAIL    nvlink  GPU 2 ..." is continued below the name of the check, "        why       NVLink 3 ..." below its text.
ESCAPE = r"(?:\x1b\[[0-9;]*m)*"
PROSE = re.compile(
    rf"{ESCAPE}(?:FAIL|WARN|UNKNOWN|SKIP|PASS) *{ESCAPE} +{ESCAPE}(?=\S)"
    rf"|{ESCAPE} {{8}}(?:why|or|also|fix|action|cause|evidence) +{ESCAPE}| {{18}}(?=\S)"
)
# A sentence or a heading without columns: not a key of YAML, a metric, Markdown or JSON.
SENTENCE = re.compile(rf"{ESCAPE}(?:gpucheck \w+  (?:\S+  )?)?{ESCAPE}[A-Za-z](?![\w.-]*: )(?:(?!  |[|{{}}\"=`]).)*$")
# Of a list below a title: an indented sentence that ends as one.
ITEM = re.compile(r"  [A-Z0-9](?:(?!  |[|{}\"`]).)*\.$")
HANGING = 2
# A step that is a command (render.write.terminal): broken, it could not be copied.
COMMAND = re.compile(rf"{ESCAPE} {{8}}(?:fix {{9}}| {{12}})(?=\S)")
LAST_COLUMN = re.compile(r".*\S {2,}(?=\S)")
NEXT_LINE = 6
LEAST = 40  # columns; in less, the lines of a terminal are no worse


def columns(output: Path | None = None) -> int | None:
    """The width of the terminal that is stdout; None where it is not a terminal, or where the output is a file."""
    if output is not None or not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def fitted(text: str, width: int | None) -> str:
    """Wrap the lines of findings that are too long. width: None for no limit."""
    if width is None or width < LEAST:
        return text
    return "\n".join(_wrapped(line, width) if len(line) > width else line for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    begin = PROSE.match(line)
    plain = click.unstyle(line)
    item = ITEM.match(plain)
    if len(plain) <= width or COMMAND.match(line) or not (begin or item or SENTENCE.match(plain)):
        return line
    prefix, rest = (line[: begin.end()], line[begin.end() :]) if begin else ("", line)
    indent = len(click.unstyle(prefix)) if begin else 2 * HANGING if item else HANGING
    lines = textwrap.wrap(
        rest,
        width - (0 if begin is None else indent),
        subsequent_indent="" if begin else " " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return prefix + (f"\n{' ' * indent}" if begin else "\n").join(lines)


def table(text: str, width: int | None) -> str:
    """Wrap rows that are too long below the beginning of their last column; of a Markdown table, print records instead.

    width: None for no limit.
    """
    lines = text.split("\n")
    if width is None or width < LEAST or max(map(len, lines)) <= width:
        return text
    if text.startswith("| "):
        lines = _records(line for line in lines if line)
    return "\n".join(_row(line, width) if len(line) > width else line for line in lines)


def _row(line: str, width: int) -> str:
    begin = LAST_COLUMN.match(line)
    if begin is None:
        return line
    first, indent = begin[0], begin.end()
    if indent > width // 2:  # no room next to the name
        first, indent = f"{begin[0].rstrip()}\n{' ' * NEXT_LINE}", NEXT_LINE
    rest = textwrap.wrap(line[begin.end() :], width - indent, break_long_words=False, break_on_hyphens=False)
    return first + f"\n{' ' * indent}".join(rest)


def _records(rows: Iterable[str]) -> list[str]:
    """Each row of a Markdown table as a heading and a line for each other column."""
    header, _, *body = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    longest = max(map(len, header))
    found: list[str] = []
    for cells in body:
        found += [cells[0], *(f"  {name:<{longest}}  {cell}" for name, cell in zip(header[1:], cells[1:], strict=True))]
    return found
