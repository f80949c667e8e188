"""Classes of kernel log messages that report a GPU problem without an Xid (kernel_messages.yml)."""

from functools import cache
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table
from gpucheck.knowledge.advice import Advice

Verdict = Literal["note", "warn", "fail"]
Confidence = Literal["certain", "likely", "possible"]


class KernelMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of messages; the head of kernel_messages.yml describes each field."""

    key: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    verdict: Verdict
    says: str
    source: str
    about: Literal["gpu", "device", "port", "switch", "nic", "host"] = "host"
    why: str = ""
    steps: tuple[Advice, ...] = ()
    cause: str | None = None
    confidence: Confidence = "certain"
    follows: tuple[str, ...] = ()
    cleared_by: str | None = None


class _Messages(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-messages/2"]
    start: tuple[str, ...]
    messages: tuple[KernelMessage, ...]


def messages() -> tuple[KernelMessage, ...]:
    """Every class, in the order in which they are tried. Raises KnowledgeError if the file is damaged."""
    return table("kernel_messages.yml", _Messages).messages


@cache
def follows(key: str) -> frozenset[str]:
    """What the class is a part of when both are found. ``any`` stays as it is."""
    start = table("kernel_messages.yml", _Messages).start
    row = next(row for row in messages() if row.key == key)
    found: set[str] = set()
    for name in row.follows:
        found |= set(start[: start.index(key)]) if name == "start" else {name}
    return frozenset(found)


class Harmless(TableRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines that need no action. within: seconds since boot. of: keys of the messages that they are details of."""

    patterns: tuple[str, ...]
    says: str
    source: str
    within: float | None = None
    of: tuple[str, ...] = ()


class Family(TableRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family; the head of kernel_lines.yml describes each field. title: as a noun (``PCI Express ports``)."""

    key: str
    title: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    steps: tuple[Advice, ...]
    harmless: tuple[Harmless, ...]


class _Lines(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-lines/2"]
    trouble: str
    families: tuple[Family, ...]


def families() -> tuple[Family, ...]:
    """Every family, in the order in which they are tried. Raises KnowledgeError if the file is damaged."""
    return table("kernel_lines.yml", _Lines).families


def trouble() -> str:
    """A regular expression for words that speak of trouble."""
    return table("kernel_lines.yml", _Lines).trouble.replace("| ", "|")
