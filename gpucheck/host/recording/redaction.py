"""Redaction of recordings and reports: names, addresses, identifiers and secrets are replaced in one pass.

A replacement is a hash with a random key: equal things stay equal in one document, and no list of host names or serial
numbers finds the original. Kept are PCI bus ids, versions, models, registers and whatever is evaluated. A name in prose
has no format that could be found.
"""

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from gpucheck.host.recording import Recording
from gpucheck.knowledge.messages import messages
from gpucheck.model import NvmlFailure

LABEL = r"[A-Za-z0-9](?:[\w-]{0,61}[A-Za-z0-9])?"
HOST = rf"{LABEL}(?:\.{LABEL}){{0,8}}"
USER = r"[A-Za-z_](?:[\w.-]{0,62}[\w-])?"
CREDENTIAL = (
    r"(?i:passw(?:or)?d|pass_?phrase|(?<![a-z])pwd|secret|token(?!i[sz])|cookie|credential|(?<![a-z])creds?(?![a-z])"
    r"|(?:api|access|account|private|auth|secret)[_-]?key|(?<![a-z])auth(?:orization)?(?![a-z])"
    r"|(?<![a-z])(?:sas|dsn|sig)(?![a-z]))"
)
HARMLESS = r"(?i:true|false|yes|no|on|off|none|null|auto|default|enabled|disabled|\d{1,5}|0x[0-9a-f]{1,8}|/[\w./-]+)"
HOST_VARIABLE = (
    r"(?<![A-Za-z0-9])(?:[A-Z0-9]{1,40}_){0,6}"
    r"(?:ADDR|ADDRESS|HOST|HOSTNAME|HOSTID|NODELIST|NODENAME|NODES|SERVERS?|MASTER|COORDINATOR|ENDPOINT|COMM_ID|PEERS|WORKERS|HOSTS|SSH_CLIENT|SSH_CONNECTION)"
)
TOP = (
    "com|org|net|edu|gov|mil|int|io|ai|dev|cloud|de|uk|fr|ch|nl|eu|jp|cn|kr|ca|au|us|local|lan|corp|internal|intern"
    "|example|test|invalid"
)
# Sites of manufacturers, distributions and frameworks: no message that names one shows where a host is.
PUBLIC = (
    r"(?:[\w-]{1,60}\.){0,3}(?:nvidia|kernel|github|gitlab|pytorch|tensorflow|python|debian|ubuntu|redhat|rockylinux"
    r"|almalinux|docker|freedesktop|nvcr|huggingface)\.(?:com|org|io|co)(?![\w.-])"
)
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
ADDRESS = rf"(?<![\d.])(?!127\.|0\.0\.0\.0|255\.){OCTET}(?:\.{OCTET}){{3}}(?!\d|\.\d)"
# What a pattern replaces is its named group, whose name is the kind and a number. Every repetition has a bound.
IDENTIFIERS = (
    r"(?P<uuid1>(?<![0-9A-Za-z])(?!0{8}-)(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9A-Za-z]))",
    r"(?<=\bGPU-)(?P<uuid2>(?i:[0-9a-f][0-9a-f-]{2,34})(?![0-9A-Za-z-]))",
    # 6 bytes are Ethernet's, 8 and 20 InfiniBand's, four groups of four a GUID. PCI bus ids have three groups.
    r"(?P<hardware1>(?<![0-9A-Za-z:])(?i:[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})"
    r"(?![0-9A-Za-z]|:[0-9A-Fa-f]))",
    r"(?P<hardware2>(?<![0-9A-Za-z-])(?i:[0-9a-f]{2}(?:-[0-9a-f]{2}){5,7})(?![0-9A-Za-z-]))",
    r"(?P<hardware3>(?<![0-9A-Za-z.])(?i:[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4})(?![0-9A-Za-z]|\.\w))",
    r"(?<=\b[ewi][nlb]x)(?P<hardware4>[0-9a-f]{12})\b",
    r"\b(?i:mac|hwaddr|ether|guid)(?i:[\s_-]?addr(?:ess)?)?[^0-9A-Za-z\n]{1,12}(?:0x)?"
    r"(?P<hardware5>(?i:[0-9a-f]{12}(?:[0-9a-f]{4})?))(?![0-9A-Za-z])",
    r"(?<![0-9A-Za-z])(?:0x)?(?P<hardware6>(?i:(?!ffff|0000)[0-9a-f]{6}0300[0-9a-f]{6}))(?![0-9A-Za-z])",
    r"(?P<serial1>\b(?:iqn|nqn)\.\d{4}-\d\d\.[\w.:-]{1,200})",
    # Not the end of an element of XML.
    r"(?P<path1>(?<![\w.)\]}~/-])(?!(?<=<)/[\w:.-]{1,80}\s?>)/(?:[\w.@%+,#~-]+(?<!,)/)*[\w.@%+#~-]+)",
)
SECRETS = (
    r"(?P<secret1>-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?s:.*?)(?:-----END[ A-Z0-9]{0,40}KEY-----|\Z))",
    r"(?<=://)(?P<secret2>[^\s\"'<>]{1,300})(?=@[\w\[])",
    r"\b(?i:authorization[\"']?\s?[:=]\s?[\"']?(?:(?:basic|bearer|token|digest)\s)?|bearer\s)"
    r"(?P<secret3>[^\s\"',;]{6,})",
    r"\b(?i:cookie)[\"']?\s?[:=]\s?[\"']?(?P<secret4>[^\r\n\"']+)",
    r"\bmachine \S{1,200} login (?P<secret5>\S{1,200} password \S+)",
    r"(?<!\S)(?:-u|--user)[ =](?P<secret6>[\w.@-]{1,64}:\S+)",
    r"\b(?P<secret7>(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w.-]{20,}|gh[pousr]_\w{16,}|github_pat_\w{20,}"
    r"|gl[a-z]{2,6}-[\w-]{16,}|xox[a-z]-[\w-]{8,}|hf_\w{20,}|sk-[\w-]{20,}|nvapi-[\w-]{20,}|hv[sbr]\.[\w-]{20,}"
    r"|(?:dckr_pat|npm|pypi|dop_v1|wandb_v\d)[_-][\w-]{20,}|eyJ[\w-]{8,}(?:\.[\w-]+){1,2}|hooks\.slack\.com/\S+"
    r"|AGE-SECRET-KEY-\w{20,}|(?:ssh|ecdsa)-[\w-]{1,30}\s+AAAA[\w+/=]{20,}(?:\s+\S+@\S+)?)",
    rf"(?:{CREDENTIAL}[\w-]{{0,20}}(?:\\?[\"'])?\s{{0,2}}(?:[:=]{{1,2}}|=>)\s{{0,2}}"
    rf"|--[\w-]{{0,40}}?{CREDENTIAL}[\w-]{{0,20}}\s)"
    # No name that has a value of its own.
    rf"(?!\\?[\"'][\w-]{{0,20}}{CREDENTIAL}[\w-]{{0,20}}\\?[\"']\s?[:=])"
    rf"(?!\\?[\"']?{HARMLESS}(?![\w.+/-]))(?:\\?\"(?P<secret8>(?:\\.|[^\"\\\n]){{1,400}})|'(?P<secret9>[^'\n]{{1,400}})"
    r"|(?P<secret10>[^\s\"',;&|)}\]-][^\s\"',;&|)}\]]{0,400}))",
    rf"(?:\b(?i:wandb)\b[^\n]{{0,30}}?\W|(?i:{CREDENTIAL}|key|login)\W{{1,3}})(?P<secret11>[0-9a-f]{{32,64}})\b",
)
# Both cases and digits are mixed in a key.
RANDOM = (
    r"(?P<random1>(?<![\w/.+-])(?!/|[A-Z]{2,4}-[0-9a-f]{8}-)"
    r"(?=[\w+/-]{0,200}[A-Z])(?=[\w+/-]{0,200}[a-z])(?=[\w+/-]{0,200}\d)[\w+/-]{28,200}={0,2})"
)
# Never a device of a serial port.
SERIAL = (
    r"\b(?i:serial(?:[ _]?(?:number|num|no))?|s/n|sn|(?:service|asset)[ _]tag|pdi|guid|wwn|naa|eui"
    r"|(?:machine|product)[-_]id)"
    r"[\"']?\s{0,24}[:=>. ]\s{0,2}[\"']?(?:0x)?(?P<serial2>(?!(?i:tty|console|port|number))(?=[\w-]{0,40}\d)"
    r"[A-Za-z0-9][\w-]{4,40})(?![\w-])"
)
NAMES = (
    r"(?P<mail1>(?<![\w.%+-])[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b(?!\.service))",
    rf"(?P<address1>{ADDRESS})",
    r"(?P<address2>(?<![\w:.])(?i:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])|(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f:]*))",
    r"(?P<host1>\bip(?:-\d{1,3}){4}\b)",
    rf"(?<=://)(?!{PUBLIC})(?P<host2>{HOST})",
    r"(?<![\w.-])(?P<user1>[a-z][\w.-]{0,63})(?=@(?=[\w.-]{0,60}\d)[a-z0-9])",
    r"(?<=[\w-]@)(?P<host3>(?=[\w-]{0,60}\d)[a-z][\w-]{0,63})(?![\w.@])",
    r"(?m:^)(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,24}) "
    rf"(?P<host4>{HOST}) [\w./-]{{1,60}}(?:\[\d+\])?: ",
    rf"\b(?i:(?:systemd\.)?host(?:name)?|nodename|(?:nis-)?domain|\w{{0,9}}server|nfsroot)=[\"']?"
    rf"(?!0x)(?P<host5>{HOST})",
    rf"(?<=\")(?P<host9>{HOST})(?=:\d{{2,5}}\")",
    r"(?P<host10>(?<![\w.\]-])[a-z][\w-]{0,40}\[\d{1,6}[,-][\d,-]{1,200}\])",
    r"(?P<host11>(?<![\w./=-])(?!(?:nvidia|per|multi|single|pcie?|torch|inter|intra)-)(?:[a-z][a-z0-9]{0,20}-){1,4}"
    r"(?:gpu|node|worker|compute|dgx|hgx|rack|login)-?\d{1,5}(?![\w=-]|\.\d))",
    rf"\b(?i:hostname (?:set )?to <?|server )(?P<host6>{HOST})(?=>|\s*$| (?:not responding|OK\b|timed out))",
    rf"\bip=(?P<hosts3>(?:[\d.]{{0,15}}:){{4}}{HOST})",
    rf"(?m:^)[ \t]{{0,8}}(?:search|domain) (?P<hosts1>{HOST}(?: {HOST}){{0,8}})",
    rf"{HOST_VARIABLE}=(?P<hosts2>[^\s;\"'{{]+)",
    rf"(?P<host8>(?<![\w.\\%/-])(?!{PUBLIC})(?:{LABEL}\.){{1,6}}(?:{TOP})(?![\w=-]|\.[A-Za-z0-9]))",
    r"(?<![\w-])(?i:(?:\w{1,20}_)?(?:user(?:name)?|acct|logname|login)[\"']?\s?[=:]\s?[\"']?)"
    rf"(?P<user2>{USER})(?![\w.$-]|\s?=|[\"']\s?:)",
    r"\b[a-z]?[ug]id=\d{1,10}\((?P<user3>[\w.-]{1,64})\)",
    rf"\b(?i:(?:for|of|by|from|as) (?:invalid )?user|invalid user) (?P<login1>{USER})",
    rf"\bsudo: {{1,8}}(?P<user5>{USER}) : ",
    r"\b(?i:pod)\b[=: ]{1,2}\"?(?P<name1>[a-z0-9][a-z0-9.-]{0,200}[-/][\w./-]{1,200}\w)",
)
# Kind -> what it is in the counts, and how its replacement begins.
KINDS = {
    "uuid": ("UUID", ""),
    "hardware": ("hardware address", ""),
    "serial": ("serial number", "serial"),
    "secret": ("secret", "redacted"),
    "mail": ("e-mail address", "mail"),
    "address": ("IP address", "ip"),
    "host": ("host name", "host"),
    "domain": ("host name", "domain"),
    "user": ("user name", "user"),
    "folder": ("folder name", "dir"),
    "name": ("resource name", "name"),
}
ACCOUNTS = r"(?i:root|ubuntu|debian|centos|rocky|admin|users?|nobody|nvidia|runner|none|unknown|shared)"
SYSTEM = r"(?:bin|boot|dev|etc|lib(?:32|64)?|opt|proc|run|sbin|snap|sys|usr|var|devices)"
FOLDERS = (
    r"(?:home|root|[Uu]sers|data|scratch|mnt|tmp|srv|media|work|workspace|lib(?:64)?|bin|include|\..*|.*\.so(?:\.\d+)*)"
)
NO_HOSTS = (
    r"(?i:localhost|cluster|worker|chief|evaluator|task|type|index|master|https?|none|null|true|false|nvidia|gpus|node|host"
    r"|server|kernel|driver)"
)
SHORTEST_HOST, SHORTEST_USER, SHORTEST_SERIAL = 4, 3, 4
VERSION_BEFORE = re.compile(
    r"(?i)(?:[~+_]|[a-z]-|\d-|\bv|(?:version|\bver|\brev|revision|release|firmware|\bfw|bios|nccl|cuda|cudnn|cu\d+|ofed"
    r"|package|microcode|nvml|driver|kernel module|lib[\w-]{1,40})"
    r"[\"'\])]*\s{0,4}(?:[:=]|is|are|of|>=|==)?\s{0,4}[\"'(\[]?v?)$"
)
VERSION_AFTER = re.compile(r"[-~+](?!\d{1,3}\.\d)\w|_\d")
# None of them contains a name: they would be searched for nothing, and authors of packages are public.
PLAIN = re.compile(r"/proc/(?!cmdline$)|/sys/|\{purelib\}")
FREE = ("kernel_log", "libraries", "full", "differences")
KEPT = ("schema", "gpucheck", "recorded")
BY_NAME = ("environment", "texts", "folders")


class Redaction:
    """The replacements of one run.

    hosts, users, serials: that are known. texts: whatever names more of them. salt: random unless given.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        texts: Iterable[str],
        *,
        users: Iterable[str] = (),
        serials: Iterable[str] = (),
        salt: bytes | None = None,
    ) -> None:
        self._salt = secrets.token_bytes(32) if salt is None else salt
        self._seen: set[tuple[str, str]] = set()
        reported = {one for one in serials if one.strip("0") and len(one) >= SHORTEST_SERIAL}
        of_gpus = tuple(_any("serial3", reported, r"(?<![\w-])", r"(?![\w-])"))
        self._structured = re.compile("|".join((*of_gpus, *IDENTIFIERS)))
        known = _known({*hosts}, {*users}, texts)
        self._free = re.compile("|".join((*SECRETS, *of_gpus, SERIAL, *known, *IDENTIFIERS, *NAMES, RANDOM)))
        # A recording grows, and is written again and again: each of its texts is searched once.
        self.text: Callable[[str], str] = cache(lambda text: self._free.sub(self._replaced, text))
        self.structured: Callable[[str], str] = cache(lambda text: self._structured.sub(self._replaced, text))

    def counts(self) -> dict[str, int]:
        """How many different things of each kind were replaced."""
        return dict(sorted(Counter(kind for kind, _ in self._seen).items()))

    def host(self, name: str) -> str:
        """A host's name. The short name of a host and that in its full name stay equal."""
        short, _, domain = name.partition(".")
        if re.fullmatch(ADDRESS, name):
            return self._named("address", name)
        if not re.search("[A-Za-z]", name) or re.fullmatch(NO_HOSTS, short):
            return name
        return self._named("host", short) + (f".{self._named('domain', domain)}" if domain else "")

    def variable(self, name: str, value: str) -> str:
        """The value of an environment variable."""
        if re.search(CREDENTIAL, name) and value and not re.fullmatch(HARMLESS, value):
            return self._named("secret", value)
        if re.fullmatch(HOST_VARIABLE, name) and not value.startswith("{"):
            return self._hosts(value)
        return self.text(f"{name}={value}").partition("=")[2]

    def _replaced(self, found: re.Match[str]) -> str:
        group = found.lastgroup or ""
        kind, (begin, end) = group.rstrip("0123456789"), found.span(group)
        if kind == "address" and _is_version(found):
            return found[0]
        change = CHANGES.get(kind)
        new = change(self, found[group]) if change else self._named(kind, found[group])
        return found[0][: begin - found.start()] + new + found[0][end - found.start() :]

    def _named(self, kind: str, original: str) -> str:
        return f"{KINDS[kind][1]}-{self._digits(kind, original)[:8]}"

    def _digits(self, kind: str, original: str) -> str:
        what, lower = KINDS[kind][0], original.lower()
        self._seen.add((what, lower))
        return self._hashed(f"{what}\0{lower}")

    def _hashed(self, text: str) -> str:
        """128 hexadecimal digits."""
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self._salt).hexdigest()

    def _hosts(self, value: str) -> str:
        return re.sub(rf"(?:{HOST})(?:\[[\d,-]+\])?", lambda found: self.host(found[0]), value)

    def _user(self, name: str) -> str:
        return name if re.fullmatch(ACCOUNTS, name) else self._named("user", name)

    def _random(self, text: str) -> str:
        """A key: not the name of a function, which is made of words."""
        words = sum(map(len, re.findall(r"[a-z]{3,}", text)))
        return self._named("secret", text) if words * 5 < len(text) * 2 else text

    def _uuid(self, text: str) -> str:
        """Each digit depends on those before it: CUDA_VISIBLE_DEVICES may have the first digits of a UUID."""
        lower = text.lower()
        self._seen.add(("UUID", lower))
        return "".join(one if one == "-" else self._hashed(lower[: at + 1])[0] for at, one in enumerate(lower))

    def _hardware(self, text: str) -> str:
        """In the form that it had; the digits are the same in every form."""
        digits = iter(self._digits("hardware", re.sub(r"[^0-9a-f]", "", text.lower())))
        return "".join(next(digits) if one.isalnum() else one for one in text)

    def _serial(self, text: str) -> str:
        """As many digits as it had, decimal or hexadecimal."""
        if not re.fullmatch("[0-9A-Fa-f]{1,40}", text):
            return self._named("serial", text)
        digits = self._digits("serial", text)
        return (str(int(digits, 16)) if text.isdigit() else digits)[: len(text)]

    def _path(self, text: str) -> str:
        """The directories and files of users and projects; the system's own stay."""
        _, first, *rest = text.split("/")
        if re.fullmatch(SYSTEM, first):
            return text
        of_user = rest[: first.lower() in ("home", "users")]
        return "/".join(("", self._folder(first), *map(self._user, of_user), *map(self._folder, rest[len(of_user) :])))

    def _folder(self, name: str) -> str:
        return name if re.fullmatch(FOLDERS, name) else self._named("folder", name)


CHANGES: dict[str, Callable[[Redaction, str], str]] = {
    "host": Redaction.host,
    "hosts": Redaction._hosts,
    "user": Redaction._user,
    "login": Redaction._user,
    "random": Redaction._random,
    "uuid": Redaction._uuid,
    "hardware": Redaction._hardware,
    "serial": Redaction._serial,
    "path": Redaction._path,
}


def _is_version(found: re.Match[str]) -> bool:
    before = found.string[max(0, found.start() - 40) : found.start()]
    return bool(VERSION_BEFORE.search(before) or VERSION_AFTER.match(found.string, found.end()))


def _known(hosts: set[str], users: set[str], texts: Iterable[str]) -> Iterator[str]:
    names = re.compile("|".join((rf"/(?:home|Users)/(?P<user9>{USER})", *NAMES)))
    for text in texts:
        for found in names.finditer(text):
            kind, name = (found.lastgroup or "").rstrip("0123456789"), found[found.lastgroup or 0]
            users.update([name] if kind == "user" else ())
            hosts.update([name] if kind == "host" else re.findall(HOST, name) if kind == "hosts" else ())
    hosts.update([name.partition(".")[0] for name in hosts])
    own = {name for name in hosts if len(name) >= SHORTEST_HOST and re.search("[A-Za-z]", name) and not _is_word(name)}
    # GPU7 in a message of the driver is not a host named gpu7.
    exact = {name for name in own if re.fullmatch(r"gpu\d+", name)}
    yield from _any("host20", own - exact, r"(?<![A-Za-z0-9-])(?i:", r")(?![A-Za-z0-9]|-[A-Za-z0-9])")
    yield from _any("host21", exact, r"(?<![A-Za-z0-9-])", r"(?![A-Za-z0-9]|-[A-Za-z0-9])")
    own = {name for name in users if len(name) >= SHORTEST_USER and not _is_word(name)}
    yield from _any("user20", own, r"(?<![A-Za-z0-9.])(?i:", r")(?![A-Za-z0-9]|\.[a-z])")


def _any(group: str, names: Iterable[str], before: str, after: str) -> Iterator[str]:
    if longest := sorted(set(names), key=lambda name: (-len(name), name)):
        yield f"(?P<{group}>{before}(?:{'|'.join(map(re.escape, longest))}){after})"


def _is_word(name: str) -> bool:
    """Whether a name is a word of messages: what is evaluated must not change."""
    return bool(re.fullmatch(f"{ACCOUNTS}|{NO_HOSTS}", name)) or name.lower() in _of_messages()


@cache
def _of_messages() -> frozenset[str]:
    texts = (text.lower() for row in messages() for text in (*row.words, *row.patterns))
    return frozenset(word for text in texts for word in re.findall("[a-z]{3,}", text))


def of_recording(recording: Recording, salt: bytes | None = None) -> Redaction:
    """The redaction of this recording, and of the same one with more programs of --full."""
    texts = [line.text for line in (recording.kernel_log.lines if recording.kernel_log else ())]
    texts += [f"{name}={value}" for name, value in (recording.environment or {}).items()]
    texts += [text for path, text in recording.texts.items() if text and not PLAIN.match(path)]
    for ran in recording.full.programs if recording.full else ():
        texts += [ran.errors, ran.output]
    racks = (gpu.health.rack for gpu in recording.gpus)
    serials = (*(gpu.health.serial for gpu in recording.gpus), *(rack.chassis_serial for rack in racks if rack))
    return Redaction([recording.system.hostname], texts, serials=filter(None, serials), salt=salt)


def redacted(recording: Recording, rules: Redaction) -> Recording:
    """The recording without what identifies, with the counts of what was replaced."""
    plain: dict[str, Any] = msgspec.to_builtins(recording)
    change = {part: rules.text if part in FREE else rules.structured for part in plain}
    result = {
        part: value if part in (*KEPT, *BY_NAME) else _everywhere(value, change[part]) for part, value in plain.items()
    }
    result["system"]["hostname"] = rules.host(recording.system.hostname)
    for gpu in result.get("nvml", {}).get("gpus", ()):
        for process in gpu["health"]["processes"] or () if gpu.get("health") else ():
            process["name"] = process["name"] and rules.text(process["name"])
    if isinstance(recording.nvml, NvmlFailure):
        result["nvml"] = _everywhere(plain["nvml"], rules.text)
    if "environment" in plain:
        result["environment"] = {name: rules.variable(name, value) for name, value in plain["environment"].items()}
    result["texts"] = {
        rules.structured(path): text and (rules.structured if PLAIN.match(path) else rules.text)(text)
        for path, text in plain["texts"].items()
    }
    result["folders"] = {
        rules.structured(path): found and _everywhere(found, rules.text if path == "/dev" else rules.structured)
        for path, found in plain["folders"].items()
    }
    if plain["full"] and plain["full"]["bandwidth"]:
        result["full"]["bandwidth"]["host"] = result["system"]["hostname"]
    return msgspec.convert({**result, "redacted": True, "redactions": rules.counts()}, Recording)


def encodable(recording: Recording) -> Recording:
    """Return the recording with invalid Unicode replaced: file names and variables may contain any bytes."""
    return msgspec.convert(_everywhere(msgspec.to_builtins(recording), _unicode), Recording)


def _unicode(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _everywhere(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_everywhere(item, change) for item in value]
    return value
