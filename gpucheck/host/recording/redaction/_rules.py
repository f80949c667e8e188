"""Rules that are searched for only in text that holds a word they need: a kernel log has many lines and few names."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Rule(NamedTuple):
    """A pattern, and words in lower case of which every text that it can match holds one."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]

    def possible(self, text: str) -> bool:
        """Whether the text holds one of the words."""
        lower = text.lower()
        return any(word in lower for word in self.words)

    def found(self, text: str) -> Iterator[re.Match[str]]:
        """Every match."""
        return self.pattern.finditer(text) if self.possible(text) else iter(())

    def replaced(self, text: str, change: Callable[[re.Match[str]], str]) -> str:
        """The text with every match changed."""
        return self.pattern.sub(change, text) if self.possible(text) else text


def rule(words: str, pattern: str) -> Rule:
    """words: separated by spaces; an underline means a space in them, as ``_:_``."""
    return Rule(tuple(word.replace("_", " ") for word in words.split(" ")), re.compile(pattern))


def part_replaced(found: re.Match[str], group: str, change: Callable[[str], str]) -> str:
    """The match with one group changed."""
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:start] + change(found[group]) + found[0][end:]
