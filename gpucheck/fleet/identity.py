"""Which host a report is of: its file, directory or inventory name decides; the name in the report is compared with it.

Two machines with one host name (golden images, a report in the wrong place) must not become one row.
"""

import re
from collections.abc import Sequence
from pathlib import Path

MAX_HOST_NAME = 253
PACKED = (".gz", ".zst")
ENDINGS = (*PACKED, ".json", ".ndjson", ".jsonl")
# One host's reports over time: node01-2026-11-21.json, 2026-11-21/node01.json, node01/20261121T0300Z.json.
DATE = re.compile(r"(?:^|(?<=/)|[-_.@])\d{4}-?\d\d-?\d\d(?:[-_.T]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?Z?)?(?=/|$)")
# A file whose directory is named after the host.
OUR_FILE = "report"
# What may be a name of an inventory: the label of a stream that is one is the host's name.
HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")


def bare(name: str) -> str:
    """Return the file name without what a report's file ends in."""
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def names_of(path: Path) -> tuple[str, ...]:
    """Return the host names that the place of a report file stands for, the one that counts first."""
    name, folder = bare(path.name), path.absolute().parent.name
    undated = DATE.sub("", name)
    own = [] if undated in ("", OUR_FILE) else [undated, name]
    return tuple(dict.fromkeys(filter(None, (*own, folder, name))))


def known_as(host: str, names: Sequence[str]) -> tuple[str, str | None]:
    """Return the row's name, and the name in the report if they differ. names: from its place, or none."""
    if not names:
        return host, None
    found = next((name for name in names if _is_same(name, host)), None)
    return (names[0], host) if found is None else (found, None)


def origin(source: str | None) -> str:
    """Return what the reports of one host over time have in common: the file's or stream's name without a date."""
    return DATE.sub("", bare(source or "")).strip("/")


def _is_same(one: str, other: str) -> bool:
    """Whether two names are equal, or one is the short form of the other."""
    one, other = one.casefold(), other.casefold()
    return one == other or one == other.partition(".")[0] or one.partition(".")[0] == other
