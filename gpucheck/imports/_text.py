"""Text of unknown origin: its lines, stretches of them, bus ids, JSON, and the one error of this package."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from gpucheck.foreign import text_of
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.printable import excerpt

# The one error of this package, and lines that a reader leaves out.
WHOLE = "entire input"


class ImportProblem(ValueError):
    """Input that cannot be read as what it should be.

    what: what was wanted and not got. line: in the text, else where. why: what was seen there. do: the next step.
    As text it is one line of at most a few hundred characters, whatever the input was.
    """

    def __init__(self, what: str, *, why: str, do: str, where: str = WHOLE, line: int | None = None) -> None:
        super().__init__(what, where, why, do)
        self.what = what
        self.line = line
        self.where = where
        self.why = why
        self.do = do

    def __str__(self) -> str:
        return f"{self.what} ({f'line {self.line}' if self.line else self.where}): {self.why}. {self.do}"


def absent(what: str, why: str, do: str) -> ImportProblem:
    return ImportProblem(f"no {what} in the input", why=why, do=do)


def left_out(first: int, last: int, why: str, line: str) -> UnreadRange:
    """Return lines that a reader could not use, counted from 1 in its section. line: the first of them."""
    return UnreadRange(source="", first_line=first, last_line=last, why=why, text=excerpt(line.strip(), 60))


# Regular expressions that are compiled at first use: a text is of few kinds, and the others are not needed.
def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return cast("re.Pattern[str]", _Regex(pattern, flags))


class _Regex:
    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self.pattern, self.flags), name)
        setattr(self, name, found)  # from now on as fast as without this class
        return found


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
    head = data[:4096]
    if "\0" in text and len(head) >= 4 and not (any(head[0::2]) and any(head[1::2])):
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
    return next((line for line in lines if line.strip()), "")


def quoted(line: str) -> str:
    """A piece of input made safe for a message: printable, one line, short."""
    return f'"{excerpt(line, QUOTE_LIMIT)}"'


# Stretches of lines that belong together: from a line that only one tool prints to the last that fits it.
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


# What readers of several kinds need: bus ids as Linux writes them, GPUs by number, matrices by pair.
T = TypeVar("T")

BUS_ID = regex(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def bus_id(domain: str, bus: str, device: str, function: str = "0") -> str:
    """Return a PCI bus id (``0000:3b:00.0``) from its parts as hexadecimal numbers."""
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def linux_bus_id(text: str) -> str | None:
    """Return a complete bus id in lower case with a domain of four digits, more only if needed; None for other text."""
    match = BUS_ID.fullmatch(text.strip())
    return bus_id(*match.groups()) if match else None


def in_order(found: Mapping[int, T]) -> tuple[T, ...]:
    """Return the values by number; empty unless the numbers are 0, 1, 2, ..."""
    return tuple(found[i] for i in range(len(found))) if set(found) == set(range(len(found))) else ()


def by_pair(found: Mapping[tuple[int, int], T], count: int) -> tuple[tuple[T | None, ...], ...]:
    """Return count x count cells, row = first of the pair; None where there is no value and on the diagonal."""
    return tuple(tuple(None if i == j else found.get((i, j)) for j in range(count)) for i in range(count))


# JSON of unknown origin, typed as it is looked at.
def json_object(lines: Sequence[str], tool: str) -> dict[str, Any]:
    """The object; a comma after it is not read. Raises ImportProblem where it is cut short or damaged."""
    try:
        value = msgspec.json.decode("\n".join(lines).rstrip().rstrip(",").encode("utf-8", errors="replace"))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise ImportProblem(
            f"{tool}: damaged JSON", why=why, do="Save the file again; it is cut short or edited"
        ) from None
    if not isinstance(value, dict):
        raise ImportProblem(f"{tool}: not a JSON object", line=1, why="it holds something else", do="Save it again")
    return value


def rows_of(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def string_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
