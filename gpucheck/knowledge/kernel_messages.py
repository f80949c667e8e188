"""Classes of kernel log messages that report a GPU problem without an Xid (kernel_messages.yml)."""

from functools import cache
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table

Verdict = Literal["note", "warn", "fail"]
Confidence = Literal["certain", "likely", "possible"]


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of messages; the head of kernel_messages.yml describes each field."""

    key: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    verdict: Verdict
    says: str
    source: str
    about: Literal["gpu", "device", "port", "switch", "host"] = "host"
    why: str = ""
    fix: str = ""
    cause: str | None = None
    confidence: Confidence = "certain"
    follows: tuple[str, ...] = ()
    cleared_by: str | None = None


class _Messages(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-messages/1"]
    start: tuple[str, ...]
    messages: tuple[Message, ...]


def messages() -> tuple[Message, ...]:
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
