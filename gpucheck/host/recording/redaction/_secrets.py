"""Secrets in text: by their shape, and by the name of what they are the value of."""

import re
from collections.abc import Callable

from gpucheck.host.recording.redaction._rules import part_replaced, rule

Replace = Callable[[str], str]

SHAPES = (
    rule(
        "-----begin",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
        r"(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    rule("akia asia abia acca aroa aida", r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}\b"),
    rule("aiza", r"\bAIza[\w-]{35}"),
    rule("ya29", r"\bya29\.[\w.-]{20,}"),
    rule("gocspx", r"\bGOCSPX-[\w-]{20,}"),
    rule("ghp gho ghu ghs ghr", r"\bgh[pousr]_[A-Za-z0-9]{16,}"),
    rule("github", r"\bgithub_pat_\w{20,}"),
    rule("gl", r"\bgl(?:pat|dt|ptt|rt|ft|cbt|soat|agent|imt|oas|ffct)-[\w-]{16,}(?:\.[\w.-]+)?"),
    rule("xox xapp", r"\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}"),
    rule("hooks.slack", r"\bhooks\.slack\.com/services/[\w/]+"),
    rule("hf api", r"\b(?:api_org|hf)_[A-Za-z0-9]{20,}"),
    rule("sk- live test", r"\bsk-(?:[a-z]{2,10}-)*[\w-]{20,}|\b[spr]k_(?:live|test)_\w{10,}"),
    rule("wandb", r"\bwandb_v\d_\w{20,}"),
    rule("nvapi", r"\bnvapi-[\w-]{20,}"),
    rule(
        "dckr npm pypi dop",
        r"\bdckr_(?:pat|oat)_[\w-]{16,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bdop_v1_[0-9a-f]{40,}",
    ),
    rule(
        "hvs. hvb. hvr. dapi sg. key-",
        r"\bhv[sbr]\.[\w-]{20,}|\bdapi[0-9a-f]{32}\b|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bkey-[0-9a-f]{32}\b",
    ),
    rule("eyj", r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*){1,3}"),
    rule("ssh-", r"\bssh-(?:rsa|dss|ed25519)\s+[A-Za-z0-9+/]{40,}={0,2}(?:\s+[\w.@-]+)?"),
    rule("sv= sig= se= sp= x-amz-", r"(?<=[?&;])(?:sv|sig|se|sp|X-Amz-\w+)=[^\s&\"']+"),
    rule("accountkey sharedaccess", r"(?i:AccountKey|SharedAccessKey|SharedAccessSignature)=[^;\s\"']+"),
)
# What follows a word: the word stays, the secret behind it goes.
FOLLOWING = (
    rule(
        "authorization",
        r"(?i)\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest|token|negotiate|apikey)\s+)?(?P<secret>[^\s\"',;]+)",
    ),
    rule("bearer", r"(?i)\bbearer\s+(?P<secret>(?=\S*\d|\S*[+/=_.])[\w+/=.~-]{8,})"),
    rule("basic", r"\b[Bb]asic\s+(?P<secret>(?=\S*[A-Z])(?=\S*[a-z])(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2})(?![\w-])"),
    rule("wandb", r"(?i)\bwandb\b.{0,40}?\b(?P<secret>[0-9a-f]{40})\b"),
    rule(
        "password identified",
        r"(?i)(?:\b_?password|\bidentified by)\s+(?P<secret>(?=\S*\d)[^\s=:,;]{6,})(?=\s*$|\s*[;&|\"'])",
    ),
    rule("-u --user --proxy", r"(?i)(?:^|\s)(?:-u|--user|--proxy-user)[ =]?[\"']?(?P<secret>[\w.@-]{1,64}:[^\s\"']+)"),
    # -p of many programs; numbers are ports and process ids, and mkdir -p has a path
    rule("-p", r"(?:^|\s)-p\s+(?P<secret>(?![-/~.])(?!\d{1,7}(?:\s|$|:))[^\s\"']+|\"[^\"]+\"|'[^']+')"),
    rule("-p", r"\b(?:mysql\w*|mariadb|sshpass|mongo\w*|7z)\b(?:\s+\S+){0,12}?\s-p(?P<secret>[^\s\"'-][^\s\"']*)"),
    rule("%", r"(?i)\b(?:user|credentials?)\s*[:=]\s*[\"']?[\w.-]{1,64}%(?P<secret>[^\s\"',;]+)"),
    rule("machine", r"(?i)\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S+)"),
)
# Scheme, user, password; the host is a name like any other.
IN_URL = rule(
    "://",
    r"(?<![\w.+-])[A-Za-z][\w.+-]{0,30}://"
    r"(?P<secret>[^\s/?#\"'<>|@:]*:[^\s\"'<>]+(?=@[\w\[][\w.:\[\]-]*(?:[/?#\s\"'<>,;)]|$))|[^\s/?#\"'<>|]+(?=@[\w\[]))",
)
# The names of what is secret: whole words in them, or words that are run together.
NAME = r"[A-Za-z_][\w.-]{0,120}"
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
    r"|0x[0-9a-f]{1,8}|\d{1,3}|\*+|x+|<[\w -]*>|\$\{?\w+\}?"
)
# In quotes, in quotes of a text that is itself quoted, and in quotes that nothing closes: a line may be cut off.
QUOTED = r"\"(?:\\.|[^\"\\])*\"|\\\"(?:\\\\.|[^\"\\])*\\\"|'[^'\n]*'|\\?[\"'][^\"'\n]+"
QUOTES = re.compile(r"(\\?[\"'])?((?s:.*?))(\\?[\"'])?")
# A word that has a value of its own is not a value.
VALUE = rf"(?P<value>{QUOTED}|(?![\w.-]+(?::\s|\s=\s))[^\s\"',;&|)}}\]]+)"
SECRET_WORDS = "pass pwd secret token key auth cookie cred sas signature webhook dsn connection"  # noqa: S105
MAYBE = rf"(?=[\w.-]{{0,100}}(?i:{SECRET_WORDS.replace(' ', '|')}))"
ASSIGNED = rule(
    SECRET_WORDS, rf"(?<![\w.])(?<!\w-)(?<!Sense )(?P<name>{MAYBE}{NAME})(?:\\?[\"'])?(?:=|\s?:\s?|\s=\s|\s=>\s){VALUE}"
)
OPTION = rule(SECRET_WORDS, rf"(?<![\w-])--?(?P<name>{MAYBE}{NAME})\s+(?!-){VALUE}")
# Long runs of letters of both cases and digits: keys without a name. Only hexadecimal digits: build ids.
RUN = re.compile(r"(?<![\w/.+-])[A-Za-z0-9+/]{32,}={0,2}(?![\w/-])")


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret."""
    return bool(NAMES_SECRET.search(NOT_SECRET.sub("", name)))


def without_secrets(text: str, replace: Replace) -> str:
    """The text with every secret replaced that its shape or its name shows."""
    for shape in SHAPES:
        text = shape.replaced(text, lambda found: replace(found[0]))
    for behind in (IN_URL, *FOLLOWING):
        text = behind.replaced(text, lambda found: part_replaced(found, "secret", replace))
    for named in (ASSIGNED, OPTION):
        text = named.replaced(text, lambda found: _assigned(found, replace))
    return RUN.sub(lambda found: replace(found[0]) if _is_random(found[0]) else found[0], text)


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
