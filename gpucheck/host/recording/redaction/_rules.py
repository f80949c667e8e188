"""Rules that are searched for only in text that holds a word they need: a kernel log has many lines and few names.

A pseudonym is a hash with a secret salt. Host names, addresses and serial numbers are few enough that a plain hash of
each could be computed and compared.
"""

import hashlib
import re
import secrets
from collections import Counter
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
        return self.pattern.finditer(text) if self._possible(text) else iter(())

    def replaced(self, text: str, change: Callable[[re.Match[str]], str]) -> str:
        return self.pattern.sub(change, text) if self._possible(text) else text

    def _possible(self, text: str) -> bool:
        lower = text.lower()
        return any(word in lower for word in self.words)


def rule(words: str, pattern: str) -> Rule:
    return Rule(tuple(words.split(" ")), re.compile(pattern))


@cache
def rules(section: Section) -> tuple[Rule, ...]:
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
    begin, done, place = found.start(), [], 0
    for kind in sorted(found.re.groupindex, key=found.start):
        if found[kind]:
            start, end = (edge - begin for edge in found.span(kind))
            done += [found[0][place:start], change(kind.rstrip("0123456789"), found[kind])]
            place = end
    return "".join((*done, found[0][place:]))


HOST, USER, FOLDER, ADDRESS = "host name", "user name", "folder name", "IP address"
HARDWARE, UUIDS, SERIAL, MAIL = "hardware address", "UUID", "serial number", "e-mail address"
SECRET, RESOURCE, PROGRAM = "secret", "resource name", "program name"

# Finished replacements are in the text as two characters of the private planes until its last rule has run: no rule
# finds anything in the replacement of another. Characters of these planes in the text itself are replaced first.
FIRST, SECOND, SIZE = 0xF0000, 0x100000, 0xFFFD
TOKEN = re.compile(f"([{chr(FIRST)}-{chr(FIRST + SIZE - 1)}])([{chr(SECOND)}-{chr(SECOND + SIZE - 1)}])")
PRIVATE = re.compile(f"[{chr(FIRST)}-{chr(0x10FFFF)}]")


class Pseudonyms:
    """The replacements of one run. salt: random unless given."""

    def __init__(self, salt: bytes | None = None) -> None:
        self.salt = secrets.token_bytes(32) if salt is None else salt
        self._seen: set[tuple[str, str]] = set()
        self._finished: list[str] = []
        self._numbers: dict[str, int] = {}

    def of(self, kind: str, original: str, form: Callable[[str], str]) -> str:
        """Return the protected replacement. form: makes it from 128 hexadecimal digits."""
        if TOKEN.fullmatch(original):
            return original
        original = self._written(original)
        key = original.lower()
        pseudonym = form(self._digits(kind, key))
        self._seen.add((kind, key))
        return self._protected(pseudonym)

    def named(self, kind: str, original: str, prefix: str) -> str:
        """Return prefix-1a2b3c4d, protected."""
        return self.of(kind, original, lambda digits: f"{prefix}-{digits[:8]}")

    def secret(self, original: str) -> str:
        """Return the replacement of a secret: equal secrets can be seen to be equal."""
        return self.named(SECRET, original, "redacted")

    def counts(self) -> dict[str, int]:
        """How many different things of each kind were replaced in this run."""
        return dict(sorted(Counter(kind for kind, _ in self._seen).items()))

    def changed(self, text: str, rules: Callable[[str], str]) -> str:
        if not text.isascii():
            text = PRIVATE.sub("\N{REPLACEMENT CHARACTER}", text)
        return self._written(rules(text))

    def _written(self, text: str) -> str:
        while not text.isascii() and TOKEN.search(text):
            text = TOKEN.sub(lambda m: self._finished[(ord(m[1]) - FIRST) * SIZE + ord(m[2]) - SECOND], text)
        return text

    def _protected(self, pseudonym: str) -> str:
        number = self._numbers.setdefault(pseudonym, len(self._finished))
        if number == len(self._finished):
            self._finished.append(pseudonym)
        return chr(FIRST + number // SIZE) + chr(SECOND + number % SIZE)

    def _digits(self, kind: str, text: str) -> str:
        of_kind = f"{kind}\0{text}".encode("utf-8", "replace")
        return hashlib.blake2b(of_kind, key=self.salt).hexdigest()
