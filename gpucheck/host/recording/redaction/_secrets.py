"""Secrets in text: by their shape, and by the name of what they are the value of."""

import re
from collections.abc import Callable
from functools import cache

from gpucheck.host.recording.redaction._rules import applied, parts_replaced, rule
from gpucheck.knowledge.redaction import redaction

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
