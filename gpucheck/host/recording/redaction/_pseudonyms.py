"""Pseudonyms: the same thing has the same replacement in a whole recording.

A pseudonym is a hash with a secret salt. Host names, addresses and serial numbers are few enough that a plain hash of
each could be computed and compared.
"""

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Callable

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
        """The text after all rules."""
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
