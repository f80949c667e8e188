"""Xid codes of the kernel log (xid.yml)."""

from functools import cache
from typing import Literal

import msgspec

from gpucheck.knowledge._load import table


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """What some codes say. verdict: note = nothing to do. immediate, later: the catalogue's two actions."""

    xid: tuple[int, ...]
    reading: str
    verdict: Literal["note", "warn", "fail"]
    immediate: str
    later: str = ""
    cause: str | None = None


class _Xids(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: Literal["gpucheck.knowledge.xid/1"]
    as_of: str
    source: tuple[str, ...]
    notes: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    codes: tuple[Xid, ...]


@cache
def xids() -> dict[int, Xid]:
    """Every known code. Raises KnowledgeError if the file is damaged."""
    return {code: row for row in table("xid.yml", _Xids).codes for code in row.xid}
