"""Findings on a terminal: prose is wrapped below its own beginning, commands and tables are not touched."""

import re
import sys
import textwrap
from shutil import get_terminal_size

import click

# "FAIL    nvlink  GPU 2 ..." is continued below the name of the check, "        why       NVLink 3 ..." below its text.
# Not fix and evidence: a command that is broken cannot be copied.
ESCAPE = r"(?:\x1b\[[0-9;]*m)*"
PROSE = re.compile(
    rf"{ESCAPE}(?:FAIL|WARN|UNKNOWN|SKIP|PASS) *{ESCAPE} +{ESCAPE}(?=\S)|{ESCAPE} {{8}}(?:why|or) +{ESCAPE}"
    r"|(?=(?:no )?driver )"
)
LEAST = 40  # columns; in less, the lines of a terminal are no worse


def columns() -> int | None:
    """The width of the terminal that is stdout; None where it is not a terminal."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """Wrap the lines of findings that are too long. width: None for no limit."""
    if width is None or width < LEAST:
        return text
    return "\n".join(_wrapped(line, width) if len(line) > width else line for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    begin = PROSE.match(line)
    if begin is None or len(click.unstyle(line)) <= width:
        return line
    prefix, rest = line[: begin.end()], line[begin.end() :]
    indent = len(click.unstyle(prefix))
    parts = textwrap.wrap(
        rest, width - indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    return prefix + f"\n{' ' * indent}".join(parts)
