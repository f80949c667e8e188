"""From bytes of unknown origin to plain lines: decoding, terminal escapes, invisible characters."""

from collections.abc import Iterable

from gpucheck.foreign import text_of
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._regex import regex
from gpucheck.printable import excerpt

MAX_BYTES = 128 << 20
"""A whole vendor bug report or a job's log fits; anything larger is not a paste."""
MAX_LINE = 1 << 16
"""Characters; a row of 512 columns has 4096."""

# Underline and colour codes. A terminal log keeps ESC; a copied page loses it; cat -v and JSON spell it out. Without
# ESC a number is needed: "[mem size 0x1000]" and "[Mon Feb 23" are no codes.
ANSI = regex(r"(?:(?i:\x1b|\\e|\\x1b|\\033|\\u001b|\^\[)\[[0-9;]{0,16}|\[[0-9;]{1,16})[mK]")
ESCAPES = ("\x1b[", "\\e[", "\\E[", "\\x1b[", "\\X1b[", "\\x1B[", "\\X1B[", "\\033[", "^[[", "001b[", "001B[")
WITHOUT_ESCAPE = regex(r"\[[0-9;]{1,16}[mK]")  # the same, and quick: it begins with a letter of its own
INVISIBLE = regex("[\u200b-\u200f\u2060\ufeff]")
QUOTE_LIMIT = 60


def decode(data: bytes) -> str:
    """UTF-8 or UTF-16 text; other bytes become U+FFFD, since only the ASCII part of a dump matters.

    Raises ImportProblem for empty and binary input, and for UTF-16 without a byte order mark.
    """
    if not data.strip():
        raise ImportProblem(
            "input is empty",
            where=f"{len(data)} bytes",
            why="there is nothing to read",
            do="Save the dump first: nvidia-smi topo -m > topo.txt",
        )
    text = text_of(data, errors="replace")
    if _every_second_byte_is_zero(data[:4096]) and "\0" in text:
        raise ImportProblem(
            "input is UTF-16 text without a byte order mark",
            where="byte 0",
            why="such a dump is read as UTF-8",
            do="Convert it: iconv -f UTF-16 -t UTF-8 FILE > topo.txt",
        )
    nul = text.find("\0")
    if nul >= 0:
        raise ImportProblem(
            "input is binary",
            where=f"character {nul}",
            why="text has no NUL bytes",
            do="Import the text that the tool printed; unpack compressed files first",
        )
    return text


def _every_second_byte_is_zero(head: bytes) -> bool:
    return len(head) >= 4 and (not any(head[0::2]) or not any(head[1::2]))


def plain(text: str) -> str:
    """The same text without terminal escapes and zero-width characters. Tabs stay: they part columns."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if any(escape in text for escape in ESCAPES):
        text = ANSI.sub("", text)
    elif "[" in text:
        text = WITHOUT_ESCAPE.sub("", text)
    if not text.isascii():
        text = INVISIBLE.sub("", text)
    return text


def lines_of(text: str) -> list[str]:
    """The lines of cleaned text. One longer than MAX_LINE is noise and becomes blank: the count of lines stays."""
    return [line if len(line) <= MAX_LINE else "" for line in plain(text).split("\n")]


def first_line(lines: Iterable[str]) -> str:
    """Return the first line that is not blank; empty if all are."""
    return next((line for line in lines if line.strip()), "")


def quoted(line: str) -> str:
    """A piece of input made safe for a message: printable, one line, short."""
    return f'"{excerpt(line, QUOTE_LIMIT)}"'
