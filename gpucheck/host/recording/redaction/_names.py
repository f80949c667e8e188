"""Names of hosts, domains, users and resources: learned from places with a known meaning, replaced everywhere."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from gpucheck.host.recording.redaction._rules import (
    ADDRESS,
    FOLDER,
    HARDWARE,
    HOST,
    MAIL,
    PROGRAM,
    RESOURCE,
    SERIAL,
    USER,
    UUIDS,
    Pseudonyms,
    applied,
    parts,
    parts_replaced,
    rule,
    words,
)
from gpucheck.knowledge.messages import messages
from gpucheck.knowledge.tables import redaction

UUID = rule(
    "-",
    "(?i)"
    r"(?<![0-9a-z])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-z])",
)
PART_OF_UUID = rule("gpu-", "(?i)" r"\bGPU-[0-9a-f][0-9a-f-]{2,34}(?![0-9a-z-])")
NO_UUID = "00000000-0000-0000-0000-000000000000"  # of a fabric that is one machine: the zero is the information
# 6 bytes are Ethernet's, 8 and 20 InfiniBand's; four groups of four a GUID. PCI bus ids have three groups. With dashes
# a boot loader puts the type of the network in front. With dots as switches print it.
HARDWARE_ADDRESS = rule(
    ": - .",
    "(?i)"
    r"(?<![0-9a-z:])(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}(?![0-9a-z]|:[0-9a-f])"
    r"|(?<![0-9a-z:])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![0-9a-z]|:[0-9a-f])"
    r"|(?<![0-9a-z-])(?:[0-9a-f]{2}-){5,7}[0-9a-f]{2}(?![0-9a-z-])"
    r"|(?<![0-9a-z.])(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?![0-9a-z]|\.\w)",
)
NAMED_BY_ADDRESS = rule("enx wlx ibx", r"\b(en|wl|ib)x([0-9a-f]{12})\b")
LOCAL_HOST = "0100007F"  # 127.0.0.1 as /proc/net/tcp has it on little-endian processors
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV4 = rule(".", rf"(?<![\d.])(?!127\.|0\.0\.0\.0|255\.){OCTET}(?:\.{OCTET}){{3}}(?![\d]|\.\d)")
# Versions of four numbers: the text in front of them or joined to them.
VERSION_BEFORE = re.compile(
    r"(?i)(?:[~+_]|[a-z]-|-\d{1,3}-|\d-|\bv|(?:version|\bver|\brev|revision|release|firmware|\bfw|bios|"
    r"cudnn|nccl|cuda|cu\w+|ofed|package|\bsdk|\bupdate|microcode|nvml|driver version|kernel module|lib[\w-]+)"
    r"[\"'\])]*\s*(?:[:=]|is|are|of|>=|==)?\s*[\"'(\[]?v?)$"
)
VERSION_AFTER = re.compile(r"[-~+](?!\d{1,3}\.\d)\w|_\d")
IPV6 = rule(
    ":",
    "(?i)"
    r"(?<![\w:.])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])|(?<![\w:.])(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f:]*",
)
E_MAIL = rule("@", r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[\w-]{1,63}\.)+[A-Za-z]{2,24}\b(?!\.service)")
# Not the end of an element of XML.
PATH = rule("/", r"(?<![\w.)\]}~/-])(?!(?<=<)/[\w:.-]{1,80}\s?>)/(?:[\w.@%+,#~-]+/)*[\w.@%+#~-]+")


def by_shape(text: str, names: Pseudonyms, uuids: frozenset[str]) -> str:
    """UUIDs, hardware addresses and serial numbers: nothing that a check needs has their shape."""
    text = UUID.replaced(text, lambda found: _uuid(found[0], names))
    text = PART_OF_UUID.replaced(text, lambda found: _part_of_uuid(found[0], names, uuids))
    text = HARDWARE_ADDRESS.replaced(text, lambda found: _hardware(found[0], names))
    text = NAMED_BY_ADDRESS.replaced(text, lambda found: f"{found[1]}x{_hardware(found[2], names)}")
    return applied("hardware", text, lambda kind, found: HARDWARE_FORMS[kind](found, names))


def mails(text: str, names: Pseudonyms) -> str:
    return E_MAIL.replaced(text, lambda found: names.named(MAIL, found[0], "mail"))


def addresses(text: str, names: Pseudonyms) -> str:
    text = IPV4.replaced(text, lambda found: found[0] if _is_version(found) else names.named(ADDRESS, found[0], "ip"))
    return IPV6.replaced(text, lambda found: names.named(ADDRESS, found[0], "ip"))


def hexadecimal_address(text: str, names: Pseudonyms) -> str:
    """An address of /proc/net/tcp; none and the local host stay."""
    if not text.strip("0") or text == LOCAL_HOST:
        return text
    return names.of(ADDRESS, text, lambda digits: digits[: len(text)].upper())


def paths(text: str, names: Pseudonyms) -> str:
    """The directories and files of users and projects; the system's own stay."""
    return PATH.replaced(text, lambda found: path(found[0], names))


def path(text: str, names: Pseudonyms) -> str:
    """An absolute path without the names that a person gave."""
    _, first, *rest = text.split("/")
    if words("system_folders").fullmatch(first) and not (first == "var" and rest[:1] == ["tmp"]):
        return text
    users = first.lower() in ("home", "users") and rest
    user = None
    if users:
        user = rest[0] if words("accounts").fullmatch(rest[0]) else names.named(USER, rest[0], "user")
    parts = [first, *([user] if user else []), *(rest[1:] if users else rest)]
    return "/" + "/".join(part if part == user else _folder(part, names) for part in parts)


def serials(text: str, names: Pseudonyms, known: re.Pattern[str] | None) -> str:
    """The serial numbers that NVML reported, wherever they are."""
    return known.sub(lambda found: serial(found[0], names), text) if known else text


def serial(text: str, names: Pseudonyms) -> str:
    """As many digits as it had."""
    return names.of(SERIAL, text, lambda digits: str(int(digits, 16))[: len(text)])


def _folder(name: str, names: Pseudonyms) -> str:
    return name if not name or words("folders").fullmatch(name) else names.named(FOLDER, name, "dir")


def _target(text: str, names: Pseudonyms) -> str:
    """An iSCSI or NVMe name, which holds a domain."""
    return names.named(SERIAL, text, "target")


def _is_version(found: re.Match[str]) -> bool:
    before = found.string[max(0, found.start() - 40) : found.start()]
    return bool(VERSION_BEFORE.search(before) or VERSION_AFTER.match(found.string, found.end()))


def _uuid(text: str, names: Pseudonyms) -> str:
    if text == NO_UUID:
        return text
    return names.of(UUIDS, text, _uuid_form)


def _part_of_uuid(text: str, names: Pseudonyms, uuids: frozenset[str]) -> str:
    """CUDA_VISIBLE_DEVICES takes the beginning of a UUID: the same beginning of its replacement."""
    start = text[4:].lower()
    whole = next((uuid for uuid in sorted(uuids) if uuid.startswith(start)), None)
    if whole is None:
        return text[:4] + names.of(UUIDS, start, lambda digits: digits[: len(start)])
    return text[:4] + names.of(UUIDS, whole, lambda d: _uuid_form(d)[: len(start)])


def _uuid_form(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def _hardware(text: str, names: Pseudonyms) -> str:
    """In the form that it had; the digits are the same in every form."""
    head = "0x" if text.lower().startswith("0x") else ""
    body = text[len(head) :]
    plain = re.sub(r"[^0-9a-f]", "", body.lower())

    def formed(digits: str) -> str:
        rest = iter(digits)
        return head + "".join(next(rest) if character.isalnum() else character for character in body)

    return names.of(HARDWARE, plain, formed)


def _machine(text: str, names: Pseudonyms) -> str:
    return names.of(UUIDS, text, lambda digits: digits[: len(text)])


HARDWARE_FORMS: Mapping[str, Callable[[str, Pseudonyms], str]] = {
    "serial": serial,
    "hardware": _hardware,
    "target": _target,
    "machine": _machine,
}


MOST_IN_A_LIST = 4096
LABEL = r"[A-Za-z0-9](?:[\w-]{0,61}[A-Za-z0-9])?"
NAME = rf"{LABEL}(?:\.{LABEL})*"
OF_HOSTS = (
    r"(?:ADDR|ADDRESS|HOST|HOSTNAME|HOSTID|NODELIST|NODE_LIST|NODENAME|NODES|SERVERS?|MASTER|COORDINATOR|ENDPOINT|COMM_ID"
    r"|PEERS|WORKERS|HOSTS|SEARCH|DOMAIN|DOMAINNAME|TF_CONFIG|SSH_CLIENT|SSH_CONNECTION)"
)
HOST_VARIABLE = re.compile(rf"(?:\w+_)?{OF_HOSTS}")
LIST = re.compile(r"(?P<stem>[A-Za-z][\w.-]*)\[(?P<numbers>[\d,-]+)\](?P<end>[\w.-]*)")


def host(name: str, names: Pseudonyms) -> str:
    """Only the part behind the first dot distinguishes the short name of a host from its full one."""
    if not re.search(r"[A-Za-z]", name) or re.match(r"(?i)0x[0-9a-f]*$|localhost\b|none$", name):
        return name
    return " ".join(_one_host(one, names) for one in name.split(" "))


def _one_host(name: str, names: Pseudonyms) -> str:
    short, _, domain = name.partition(".")
    under = f".{names.named(HOST, domain, 'domain')}" if domain else ""
    return names.named(HOST, short, "host") + under


def user(name: str, names: Pseudonyms) -> str:
    """A user's name; accounts that every system has are kept."""
    return name if words("accounts").fullmatch(name) else names.named(USER, name, "user")


def in_variable(name: str, value: str, names: Pseudonyms) -> str:
    return listed(value, names) if HOST_VARIABLE.fullmatch(name.upper()) else value


def listed(value: str, names: Pseudonyms) -> str:
    """The hosts of a list, in any form of hosts_in."""
    for one in sorted(set(hosts_in(value, lists=False)), key=lambda text: (-len(text), text)):
        value = re.sub(rf"(?<![\w.-]){re.escape(one)}(?![\w-]|\.\w)", lambda found: host(found[0], names), value)
    return LIST.sub(lambda found: ",".join(host(one, names) for one in expanded(found)), value)


def hosts_in(value: str, *, lists: bool = True) -> Iterator[str]:
    """Names in the value of a variable that holds hosts: JSON, host:port, lists with commas, Slurm's brackets."""
    if value.lstrip()[:1] in ("{", "["):
        with suppress(msgspec.DecodeError, UnicodeEncodeError):
            yield from _in_json(msgspec.json.decode(value))
            return
    for found in LIST.finditer(value) if lists else ():
        yield from expanded(found)
    for part in re.split(r"[\s,;|]+", LIST.sub("", value)):
        whole = re.fullmatch(rf"(?:\w+://)?(?:[^@/]*@)?({NAME})(?::\d+)?(?:/.*)?", part)
        if whole and re.search(r"[A-Za-z]", whole[1]) and not re.match(r"(?i)0x|localhost|none$", whole[1]):
            yield whole[1]


def _in_json(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _in_json(item)
    elif isinstance(value, list):
        for item in value:
            yield from _in_json(item)
    elif isinstance(value, str):
        whole = re.fullmatch(rf"(?:\w+://)?({NAME}):\d+", value)
        if whole and re.search(r"[A-Za-z]", whole[1]):
            yield whole[1]


def expanded(found: re.Match[str]) -> list[str]:
    """node[01-03,7] as node01, node02, node03, node7."""
    return list(islice(_expanded(found), MOST_IN_A_LIST))


def _expanded(found: re.Match[str]) -> Iterator[str]:
    for part in filter(None, found["numbers"].split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or len(part) > 20:
            continue
        for number in range(int(first), int(last or first) + 1):
            yield f"{found['stem']}{number:0{len(first)}d}{found['end']}"


SHORTEST_NAME = 4  # a host that is called "gpu" would take every "gpu" in the log with it
SHORTEST_USER = 3
SHORTEST_RESOURCE = 6
ACCOUNT_DIGITS = 12  # of a cloud; shorter numbers are no names
TOP = r"(?:[a-z]{2,24}|[A-Z]{2,24}|xn--[a-z0-9-]{2,59})"
FULL_NAME = rule(".", rf"(?<![\w.\\@%-])(?:{LABEL}\.)+{TOP}(?![\w-]|\.[A-Za-z0-9])")
URL_HOST = rule("://", rf"://(?:[^\s/@]{{0,400}}@)?(?P<host>{NAME})")
SET_IN_TEXT = rule("=", rf"(?<![\w])((?:[A-Z][A-Z0-9]{{0,60}}_){{0,10}}{OF_HOSTS})=([^\s;\"']+)")


@cache
def _domains(kind: str) -> frozenset[str]:
    return frozenset(getattr(redaction().domains, kind).split())


def _is_full_name(found: re.Match[str]) -> bool:
    """Whether a text with dots is a host: its last label is a domain, and it is no file, module or parameter."""
    *labels, last = found[0].split(".")
    top = last.lower()
    if top in _domains("private"):
        return True
    if not (top in _domains("top") or top.startswith("xn--")) or not re.search("[A-Za-z]", labels[-1]):
        return False
    if last != top and len(top) == 2:  # names of ACPI
        return False
    if top in _domains("words") or (len(top) == 2 and top not in _domains("countries")):
        is_set = found.string[found.end() : found.end() + 1] in ("=", "(")
        return len(labels) > 1 and not is_set and labels[0].lower() not in _domains("code")
    return True


class Names:
    """What one recording taught: names of hosts, domains, users and resources."""

    def __init__(self, hostname: str) -> None:
        self.hosts: set[str] = set()
        self.domains: set[str] = set()
        self.users: set[str] = set()
        self.resources: set[str] = set()
        self.learn_host(hostname, sure=True)
        self._hosts: re.Pattern[str] | None = None
        self._users: re.Pattern[str] | None = None
        self._resources: re.Pattern[str] | None = None

    def learn(self, text: str) -> None:
        """Return the names of hosts, users and resources in the text."""
        for found in URL_HOST.found(text):
            self.learn_host(found["host"])
        for found in FULL_NAME.found(text):
            if _is_full_name(found):
                self.learn_host(found[0])
        for found in SET_IN_TEXT.found(text):
            self.learn_variable(found[1], found[2])
        for kind, value in parts("logs", text):
            self._learn_part(kind, value)

    def _learn_part(self, kind: str, value: str) -> None:
        if kind == "user":
            self.users.add(value)
        elif kind in ("host", "node", "nodes"):
            for name in hosts_in(value) if kind == "nodes" else (value,):
                self.learn_host(name)
        elif kind == "name":
            self.resources.update(re.split(r"[/:@,\"'\s]", value))

    def learn_variable(self, name: str, value: str) -> None:
        """Return the hosts in a variable of this name: TF_CONFIG, MASTER_ADDR, SLURM_JOB_NODELIST and the like."""
        if HOST_VARIABLE.fullmatch(name.upper()):
            for host in hosts_in(value):
                self.learn_host(host)
        if name.upper() in ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER", "USERNAME"):
            self.users.add(value)

    def learn_host(self, name: str, *, sure: bool = False) -> None:
        """A host's name, short or full. sure: of this host, which may be called by a plain word."""
        short, _, domain = name.partition(".")
        if words("public").fullmatch(name) or not re.search(r"[A-Za-z]", name) or re.match(r"0x|\d+$", name):
            return
        if sure or not words("no_names").fullmatch(name):
            self.hosts.add(name)
        if domain and re.search(r"[A-Za-z]", domain):
            self.hosts.add(short)
            is_site = "." in domain and not words("public").fullmatch(domain)
            if is_site and not re.fullmatch(r"[a-z]{2,3}\.[a-z]{2}", domain):
                self.domains.add(domain)

    def freeze(self) -> None:
        hosts = {name for name in self.hosts if len(name) >= SHORTEST_NAME and not _is_word(name)}
        # GPU7 in a message of the driver is not a host named gpu7.
        alternatives = [
            re.escape(name) if re.fullmatch(r"gpu\d+", name) else f"(?i:{re.escape(name)})"
            for name in sorted(hosts, key=lambda name: (-len(name), name))
        ]
        domains = "|".join(map(re.escape, sorted(self.domains, key=lambda name: (-len(name), name))))
        under = [rf"(?i:(?:{LABEL}\.){{0,8}}(?:{domains}))"] if domains else []
        both = "|".join((*under, *alternatives))
        self._hosts = re.compile(rf"(?<![A-Za-z0-9-])(?:{both})(?![A-Za-z0-9]|-[A-Za-z0-9])") if both else None
        users = {name for name in self.users if len(name) >= SHORTEST_USER and _is_own(name)}
        self._users = _any(users, r"(?<![A-Za-z0-9.])", r"(?![A-Za-z0-9]|\.[a-z])")
        # Words of a language are in other texts too.
        resources = {name for name in self.resources if len(name) >= SHORTEST_RESOURCE and re.search(r"[\d_-]", name)}
        self._resources = _any(filter(_is_own, resources), r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])")

    def replaced(self, text: str, names: Pseudonyms) -> str:
        def change(kind: str, found: str) -> str:
            return FORMS[kind](found, names)

        text = FULL_NAME.replaced(text, lambda found: _public_or(found[0], names) if _is_full_name(found) else found[0])
        text = applied("logs", text, change)
        text = URL_HOST.replaced(text, lambda found: parts_replaced(found, lambda _, name: _public_or(name, names)))
        text = SET_IN_TEXT.replaced(text, lambda found: f"{found[1]}={in_variable(found[1], found[2], names)}")
        if self._hosts:
            text = self._hosts.sub(lambda found: host(found[0], names), text)
        if self._users:
            text = self._users.sub(lambda found: user(found[0], names), text)
        return self._resources.sub(lambda found: _resource(found[0], names), text) if self._resources else text


def _public_or(name: str, names: Pseudonyms) -> str:
    return name if words("public").fullmatch(name) else host(name, names)


def _is_own(name: str) -> bool:
    return not words("accounts").fullmatch(name) and not _is_word(name)


def _is_word(name: str) -> bool:
    """Whether a name is a word of messages: an attempt to log in as "fallen" must not change what is evaluated."""
    return bool(words("no_names").fullmatch(name)) or name.lower() in _of_messages()


@cache
def _of_messages() -> frozenset[str]:
    texts = (text.lower() for row in messages() for text in (*row.words, *row.patterns))
    return frozenset(word for text in texts for word in re.findall("[a-z]{3,}", text))


def _node(name: str, names: Pseudonyms) -> str:
    return _public_or(name, names) if _is_own(name) else name


def _resource(text: str, names: Pseudonyms) -> str:
    """The parts of a name, between slashes and colons: pod, namespace, bucket, project, account of a cloud."""
    return re.sub(r"[^/:@,\"'\s]+", lambda part: _part_of_resource(part[0], names), text)


def _part_of_resource(part: str, names: Pseudonyms) -> str:
    is_named = len(part) == ACCOUNT_DIGITS if part.isdigit() else _is_own(part)
    return names.named(RESOURCE, part, "name") if is_named else part


def _program(name: str, names: Pseudonyms) -> str:
    """A script that a person wrote; its suffix stays."""
    stem, _, suffix = name.rpartition(".")
    return name if words("folders").fullmatch(name) else f"{names.named(PROGRAM, stem, 'program')}.{suffix}"


# By the kind of a group in the rules.
FORMS: dict[str, Callable[[str, Pseudonyms], str]] = {
    "user": user,
    "host": host,
    "node": _node,
    "nodes": listed,
    "name": _resource,
    "program": _program,
    "address": hexadecimal_address,
}


def _any(names: Iterable[str], before: str, after: str) -> re.Pattern[str] | None:
    longest = sorted(set(names), key=lambda word: (-len(word), word))
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest))}){after}", re.IGNORECASE) if longest else None
