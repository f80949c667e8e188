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

from gpucheck.knowledge.tables import redaction

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


Replace = Callable[[str], str]

# Scheme, user, password; the host is a name like any other.
IN_URL = rule(
    "://",
    r"(?<![\w.+-])[A-Za-z][\w.+-]{0,30}://"
    r"(?P<secret>[^\s/?#\"'<>|@:]{0,200}:[^\s\"'<>]{1,400}(?=@[\w\[][\w.:\[\]-]{0,260}(?:[/?#\s\"'<>,;)]|$))|[^\s/?#\"'<>|]{1,400}(?=@[\w\[]))",
)
# The names of what is secret: whole words in them, or words that are run together.
NAME = r"\w[\w.-]{0,120}"
NOT_SECRET = re.compile(
    r"(?i)by_?pass|compass|pass_?(?:thr|ive|ed|es\b|ing|port)|(?<![a-z])[pqlr]_?key|monkey|hotkey|turkey|jockey|key_?(?:board|map|code|ring|s?lot)"
    r"|author(?!i[sz])|tokeni[sz]er|num_?tokens|max_?tokens|(?:public|pub)_?key|keyword|sense.?key"
)
NAMES_SECRET = re.compile(
    r"(?i)pass(?:wd|word|phrase|code)?|secret|token|cookie|(?<![a-z])creds?(?![a-z])|credential|api_?key|(?:^|[^a-z])pwd|pwd$"
    r"|(?:^|[\W_])auth(?:$|[\W_])|authorization|keys?$|(?:^|[\W_])keys?(?:$|[\W_])|(?:^|[\W_])sas(?:$|[\W_])|signature$"
    r"|webhook|(?:^|[\W_])dsn$|connection_?string"
)
PATHS = re.compile(r"(?i)^(?:old)?pwd$|(?:file|path|dir|folder|sock)$")
HARMLESS = re.compile(
    r"(?i)|bearer|basic|digest|true|false|yes|no|on|off|none|null|nil|auto|default|enabled?|disabled?|not|missing|required|unavailable"
    r"|[\[{(]+|0x[0-9a-f]{1,8}|\d{1,3}|\*+|x+|<[\w -]*>|\$\{?\w+\}?"
)
# In quotes, in quotes of a text that is itself quoted, and in quotes that nothing closes: a line may be cut off.
QUOTED = r"\"(?:\\.|[^\"\\])*\"|\\\"(?:\\\\.|[^\"\\])*\\\"|'[^'\n]*'|\\?[\"'][^\"'\n]+"
QUOTES = re.compile(r"(\\?[\"'])?((?s:.*?))(\\?[\"'])?")
# A word that has a value of its own is not a value.
VALUE = rf"(?P<value>{QUOTED}|(?![\w.-]+(?::\s|\s=\s))[^\s\"',;&|)}}\]]+)"
SECRET_WORDS = "pass pwd secret token key auth cookie cred sas signature webhook dsn connection"  # noqa: S105
MAYBE = rf"(?=[\w.-]{{0,100}}(?i:{SECRET_WORDS.replace(' ', '|')}))"
SET = r"(?:\s{0,12}(?:=>|\?=|:{1,3}=)\s{0,12}|=|\s?:\s?|\s=\s)"
ASSIGNED = rule(SECRET_WORDS, rf"(?<![\w.])(?<!\w-)(?<!Sense )(?P<name>{MAYBE}{NAME})(?:\\?[\"'])?{SET}{VALUE}")
OPTION = rule(SECRET_WORDS, rf"(?<![\w-])--?(?P<name>{MAYBE}{NAME})\s+(?!-){VALUE}")
# Long runs of letters of both cases and digits: keys without a name. Only hexadecimal digits: build ids.
RUN = re.compile(r"(?<![\w/.+-])[A-Za-z0-9+/]{32,}={0,2}(?![\w/-])")


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret."""
    return bool(NAMES_SECRET.search(NOT_SECRET.sub("", name)))


def without_secrets(text: str, replace: Replace) -> str:
    """The text with every secret replaced that its shape or its name shows."""

    def secret(_kind: str, found: str) -> str:
        return replace(found)

    text = applied("shapes", text, secret)
    text = IN_URL.replaced(text, lambda found: parts_replaced(found, secret))
    text = applied("following", text, secret)
    text = _of_services().sub(lambda found: parts_replaced(found, secret), text)
    for named in (ASSIGNED, OPTION):
        text = named.replaced(text, lambda found: _assigned(found, replace))
    return RUN.sub(lambda found: replace(found[0]) if _is_random(found[0]) else found[0], text)


@cache
def _of_services() -> re.Pattern[str]:
    """A value of letters and digits that is assigned to the name of a service whose keys have no shape of their own."""
    names = "|".join(redaction().services.split())
    return re.compile(
        rf"(?i)(?:{names})[ \t\w.-]{{0,30}}[\s'\"]{{0,3}}(?:=>|\?=|:{{1,3}}=|\|\||[=>:,])[`'\"\s=]{{0,5}}"
        r"(?P<secret>(?=[\w=.+/:-]{0,60}\d)[\w=.+/:-]{10,200})(?![\w])"
    )


def value_of(name: str, value: str, replace: Replace) -> str:
    """Return the value of a variable of this name: replaced entirely if the name shows that it is secret."""
    if not is_secret_name(name) or HARMLESS.fullmatch(value) or (PATHS.search(name) and value.startswith("/")):
        return value
    return replace(value)


def _assigned(found: re.Match[str], replace: Replace) -> str:
    opening, inner, closing = QUOTES.fullmatch(found["value"]).groups("")  # type: ignore[union-attr]  # matches any text
    if value_of(found["name"], inner, replace) == inner:
        return found[0]
    return f"{found[0][: len(found[0]) - len(found['value'])]}{opening}{replace(inner)}{closing}"


def _is_random(text: str) -> bool:
    """Whether both cases and digits are mixed as in a random string, not as in names of functions."""
    joined = sum(len(word) for word in re.findall(r"[a-z]{3,}", text))
    return all(re.search(kind, text) for kind in ("[A-Z]", "[a-z]", r"\d")) and joined * 5 < len(text) * 2
