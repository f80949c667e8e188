"""What identifies a machine or a person by its shape: UUIDs, hardware and network addresses, serial numbers, paths."""

import re
from collections.abc import Callable, Mapping

from gpucheck.host.recording.redaction._rules import (
    ADDRESS,
    FOLDER,
    HARDWARE,
    MAIL,
    SERIAL,
    USER,
    UUIDS,
    Pseudonyms,
    applied,
    rule,
    words,
)

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
    user = _user(rest[0], names) if users else None
    parts = [first, *([user] if user else []), *(rest[1:] if users else rest)]
    return "/" + "/".join(part if part == user else _folder(part, names) for part in parts)


def serials(text: str, names: Pseudonyms, known: re.Pattern[str] | None) -> str:
    """The serial numbers that NVML reported, wherever they are."""
    return known.sub(lambda found: serial(found[0], names), text) if known else text


def serial(text: str, names: Pseudonyms) -> str:
    """As many digits as it had."""
    return names.of(SERIAL, text, lambda digits: str(int(digits, 16))[: len(text)])


def _user(name: str, names: Pseudonyms) -> str:
    return name if words("accounts").fullmatch(name) else names.named(USER, name, "user")


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
