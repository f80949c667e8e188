"""Lines that programs print when something is wrong, and what they mean: one YAML file here for each kind of text.

Kernel messages have a table of their own (knowledge/kernel_messages.yml), since they need more than one line.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table
from gpucheck.knowledge.causes import Advice

FOLDER = Path(__file__).parent
NEVER = "(?!)"  # the pattern of a message that a reader finds in other ways
# One element of a pattern: an escape, a class, a group's bracket, a count, characters that stand for themselves (but
# not the last of them before a count), or one character.
ELEMENT = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|[:=!]|<[=!]))?|\)|[*+?]\??|\{[\d,]+\}\??"
    r"|[\w ,:;'\"=/-]+(?![*?{])|.",
    re.DOTALL,
)
PLAIN = re.compile(r"\\[^A-Za-z0-9]|[^\\\[()^$.+*?{|].*")
SHORTEST = 3


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line with a known meaning. ``says``: the meaning in one phrase.

    why and steps: as in a finding; where a cause is named its steps follow.
    """

    key: str
    patterns: tuple[str, ...]
    says: str
    source: str
    why: str = ""
    steps: tuple[Advice, ...] = ()
    cause: str | None = None


class KnownMessage(Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message.

    key: unique over all files, the part before the first dot is the file's name. patterns: regular expressions,
    searched in a line, case-sensitive unless they begin with (?i); a group named ``gpu`` is a bus id or an index.
    verdict: ``pass`` for a known harmless message. versions: where the wording was seen. bare: it states only that
    something failed, and adds nothing to a message that states what.
    """

    verdict: Literal["pass", "warn", "fail", "unknown"]
    confidence: Literal["certain", "likely", "possible"] | None = None
    versions: str = ""
    bare: bool = False


class _Rows(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """title: of a kind of text whose lines stand for themselves, where no reader has it. exact: no other program
    prints these lines.
    """

    schema_: Literal["gpucheck.knowledge.messages/2"]
    as_of: str
    messages: tuple[KnownMessage, ...]
    title: str | None = None
    exact: bool = False


@cache
def rows(kind: str) -> tuple[KnownMessage, ...]:
    """The messages of one kind of text, in the order in which they are tried. Raises KnowledgeError."""
    return table(f"messages/{kind}.yml", _Rows).messages


@cache
def kinds() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))


@cache
def titles() -> dict[str, tuple[str, bool]]:
    """Title of each kind of text that is nothing but messages, and whether its lines are exact."""
    files = {kind: table(f"messages/{kind}.yml", _Rows) for kind in kinds()}
    return {kind: (file.title, file.exact) for kind, file in files.items() if file.title is not None}


def row(key: str) -> KnownMessage:
    """The message with this key. Raises KeyError."""
    return _by_key()[key]


@cache
def _by_key() -> dict[str, KnownMessage]:
    return {row.key: row for kind in kinds() for row in rows(kind)}


# Most patterns are never needed: no line has their texts.
_pattern = cache(re.compile)


@cache
def _patterns(kind: str) -> tuple[tuple[KnownMessage, str, tuple[str, ...], bool], ...]:
    """Each pattern with the texts of which a line must hold one, and whether their case is of no matter."""
    found = []
    for row in rows(kind):
        for pattern in row.patterns:
            folded = pattern.startswith("(?i)")
            if pattern == NEVER:
                continue
            needed = needed_texts(pattern.removeprefix("(?i)"))
            found.append((row, pattern, tuple(map(str.lower, needed)) if folded else needed, folded))
    return tuple(found)


def marks(kind: str) -> tuple[tuple[str, bool], ...]:
    """Texts of which every message of this kind holds one, and whether their case is of no matter.

    Empty where a message has none.
    """
    every = _patterns(kind)
    if not all(needed for _, _, needed, _ in every):
        return ()
    return tuple(dict.fromkeys((text, folded) for _, _, needed, folded in every for text in needed))


def speaks(kind: str, line: str) -> bool:
    return meaning(kind, line) is not None


def meaning(kind: str, line: str) -> tuple[KnownMessage, str | None] | None:
    """The message that a line is, and the GPU that it names; None for any other line."""
    lower = line.lower()
    for row, pattern, needed, folded in _patterns(kind):
        # A search for letters is a hundred times faster than one for a pattern, and nearly no line has them.
        if needed and not _any_of(needed, lower if folded else line):
            continue
        if match := _pattern(pattern).search(line):
            return row, match.groupdict().get("gpu")
    return None


def _any_of(texts: tuple[str, ...], line: str) -> bool:
    return texts[0] in line if len(texts) == 1 else any(text in line for text in texts)


class Patterns:
    """Patterns that are tried in order. One is compiled when a line has a text that it needs: few ever are."""

    def __init__(self, patterns: Iterable[str]) -> None:
        # The texts of a pattern that ignores case are in any case: such a pattern is tried on every line.
        self._tried = tuple((one, () if one.startswith("(?i)") else needed_texts(one)) for one in patterns)

    def search(self, line: str) -> bool:
        return any(_pattern(pattern).search(line) for pattern in self._near(line))

    def match(self, line: str) -> bool:
        return any(_pattern(pattern).match(line) for pattern in self._near(line))

    def _near(self, line: str) -> Iterator[str]:
        return (pattern for pattern, needed in self._tried if not needed or _any_of(needed, line))


def needed_texts(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of the pattern holds one: one for each alternative; empty where one has none."""
    found, start, depth, end = [], 0, 0, 0
    for element in ELEMENT.findall(pattern) if "|" in pattern else ():
        depth += element.startswith("(") - (element == ")")
        if depth == 0 and element == "|":
            found.append(needed_text(pattern[start:end]))
            start = end + 1
        end += len(element)
    found.append(needed_text(pattern[start:]))
    return tuple(found) if all(len(text) >= SHORTEST for text in found) else ()


def needed_text(pattern: str) -> str:
    """Return the longest text that every match of the pattern contains; empty without one.

    Groups are not searched, and a pattern with alternatives outside of groups has none.
    """
    runs, run, depth = [""], "", 0
    for element in ELEMENT.findall(pattern):
        if element.startswith("("):
            depth += 1
        elif element == ")":
            depth -= 1
        elif depth == 0 and element == "|":
            return ""
        elif depth == 0 and element[0] in "*?{" and len(run):
            runs.append(run[:-1])
            run = ""
            continue
        elif depth == 0 and PLAIN.fullmatch(element):
            run += element.removeprefix("\\")
            continue
        runs.append(run)
        run = ""
    return max([*runs, run], key=len)


Verdict = Literal["note", "warn", "fail"]
Confidence = Literal["certain", "likely", "possible"]


class KernelMessage(Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of messages; the head of kernel_messages.yml describes each field."""

    words: tuple[str, ...]
    verdict: Verdict
    about: Literal["gpu", "device", "port", "switch", "nic", "host"] = "host"
    confidence: Confidence = "certain"
    follows: tuple[str, ...] = ()
    cleared_by: str | None = None


class _Messages(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-messages/2"]
    start: tuple[str, ...]
    messages: tuple[KernelMessage, ...]


def messages() -> tuple[KernelMessage, ...]:
    """Every class, in the order in which they are tried. Raises KnowledgeError if the file is damaged."""
    return table("kernel_messages.yml", _Messages).messages


@cache
def follows(key: str) -> frozenset[str]:
    """What the class is a part of when both are found. ``any`` stays as it is."""
    start = table("kernel_messages.yml", _Messages).start
    row = next(row for row in messages() if row.key == key)
    found: set[str] = set()
    for name in row.follows:
        found |= set(start[: start.index(key)]) if name == "start" else {name}
    return frozenset(found)


class Harmless(TableRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines that need no action. within: seconds since boot. of: keys of the messages that they are details of."""

    patterns: tuple[str, ...]
    says: str
    source: str
    within: float | None = None
    of: tuple[str, ...] = ()


class Family(TableRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family; the head of kernel_lines.yml describes each field. title: as a noun (``PCI Express ports``)."""

    key: str
    title: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    steps: tuple[Advice, ...]
    harmless: tuple[Harmless, ...]


class _Lines(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-lines/2"]
    trouble: str
    families: tuple[Family, ...]


def families() -> tuple[Family, ...]:
    """Every family, in the order in which they are tried. Raises KnowledgeError if the file is damaged."""
    return table("kernel_lines.yml", _Lines).families


def trouble() -> str:
    """A regular expression for words that speak of trouble."""
    return table("kernel_lines.yml", _Lines).trouble.replace("| ", "|")
