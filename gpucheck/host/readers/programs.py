"""The output of ``systemctl show`` and ``ldconfig -p``."""

import re
from typing import Dict, Iterator, List, NamedTuple

CACHE_LINE = re.compile(r"\s*(?P<soname>\S+) \((?P<kind>[^)]*)\) => (?P<path>.+)")


def units(output: str) -> List[Dict[str, str]]:
    """Return the properties of each unit in the order queried: ``systemctl show`` puts an empty line between them."""
    blocks = output.strip().split("\n\n")
    return [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks]


class Cached(NamedTuple):
    """A line of the loader's cache. kind: the text in its brackets, such as ``libc6,x86-64``."""

    soname: str
    kind: str
    path: str


def cached_libraries(output: str) -> Iterator[Cached]:
    """Read the lines of ``ldconfig -p`` that name a library."""
    for line in output.splitlines():
        found = CACHE_LINE.match(line)
        if found:
            yield Cached(found.group("soname"), found.group("kind"), found.group("path"))
