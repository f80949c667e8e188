"""Names of hosts and users: their replacements, and the forms in which variables hold them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from gpucheck.host.recording.redaction._pseudonyms import HOST, USER, Pseudonyms
from gpucheck.host.recording.redaction._rules import words

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
    """The value of a variable that holds names of hosts."""
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
    """Every host:port of a cluster's description."""
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
