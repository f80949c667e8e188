"""Rules that are searched for only in text that holds a word they need: a kernel log has many lines and few names."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from gpucheck.knowledge.redaction import redaction

# Kind of what a group matched, and the text: its replacement.
Change = Callable[[str, str], str]
Section = Literal["shapes", "following", "logs", "hardware"]


class Rule(NamedTuple):
    """A pattern, and words in lower case of which every text that it can match holds one."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]

    def found(self, text: str) -> Iterator[re.Match[str]]:
        """Every match."""
        return self.pattern.finditer(text) if self._possible(text) else iter(())

    def replaced(self, text: str, change: Callable[[re.Match[str]], str]) -> str:
        """The text with every match changed."""
        return self.pattern.sub(change, text) if self._possible(text) else text

    def _possible(self, text: str) -> bool:
        lower = text.lower()
        return any(word in lower for word in self.words)


def rule(words: str, pattern: str) -> Rule:
    """words: separated by spaces."""
    return Rule(tuple(words.split(" ")), re.compile(pattern))


@cache
def rules(section: Section) -> tuple[Rule, ...]:
    """The rules of a section of the table."""
    parts = redaction().parts

    def complete(pattern: str) -> str:
        return re.sub("%([A-Z]+)%", lambda found: parts[found[1]], pattern)

    return tuple(rule(row.words, complete(row.pattern)) for row in getattr(redaction(), section))


@cache
def words(name: str) -> re.Pattern[str]:
    """The words of this name in the table, for a match of the complete text in any case."""
    return re.compile(f"(?i:{'|'.join(redaction().words[name].split())})")


def applied(section: Section, text: str, change: Change) -> str:
    """The text with the groups of every rule of the section changed."""
    lower = text.lower()
    for needed, pattern in rules(section):
        if any(word in lower for word in needed):
            text = pattern.sub(lambda found: parts_replaced(found, change), text)
    return text


def parts(section: Section, text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of every group of every match."""
    lower = text.lower()
    for needed, pattern in rules(section):
        for found in pattern.finditer(text) if any(word in lower for word in needed) else ():
            yield from ((kind.rstrip("0123456789"), value) for kind, value in found.groupdict().items() if value)


def parts_replaced(found: re.Match[str], change: Change) -> str:
    """The match with each of its named groups changed."""
    begin, done, place = found.start(), [], 0
    for kind in sorted(found.re.groupindex, key=found.start):
        if found[kind]:
            start, end = (edge - begin for edge in found.span(kind))
            done += [found[0][place:start], change(kind.rstrip("0123456789"), found[kind])]
            place = end
    return "".join((*done, found[0][place:]))
