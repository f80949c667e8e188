"""The tree of lspci -t: which bridges are above which device."""

import re
from collections.abc import Iterable
from typing import NamedTuple

ROOT = re.compile(r"^\s{0,8}(?:-\+?-?|[+\\]-)\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}(?:-[0-9a-f]{2})?\]")
BRANCH = re.compile(r"^[ |]{0,200}[+\\]-")
TOKEN = re.compile(
    r"\[(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2})(?:-[0-9a-f]{2})?\]|(?P<device>[01][0-9a-f]\.[0-7])|(?P<fork>[+\\])"
)
LONGEST = 2000


class Node(NamedTuple):
    """A device of the tree. path: bus ids of the bridges above it, from the root down. name: with lspci -tv."""

    path: tuple[str, ...]
    name: str


class _Bus(NamedTuple):
    domain: str
    number: str
    path: tuple[str, ...]


def is_tree(line: str) -> bool:
    """Whether a line is one of such a tree."""
    return ROOT.match(line) is not None or BRANCH.match(line) is not None


def nodes(lines: Iterable[str]) -> dict[str, Node]:
    """Every device of all trees in these lines, by its bus id."""
    found: dict[str, Node] = {}
    forks: dict[int, _Bus] = {}
    for line in lines:
        if ROOT.match(line) and line.lstrip().startswith("-"):
            forks = {}
        if is_tree(line):
            _line(line[:LONGEST].rstrip(), forks, found)
    return found


def _line(line: str, forks: dict[int, _Bus], found: dict[str, Node]) -> None:
    """One line. forks: column of a fork -> the bus whose devices it joins."""
    bus: _Bus | None = None
    last: str | None = None
    at, first = 0, True
    while (token := TOKEN.search(line, at)) is not None:
        at = token.end()
        if token["fork"]:
            if first:
                bus = forks.get(token.start())
            elif bus is not None:
                forks[token.start()] = bus
            first = False
        elif token["device"]:
            first = False
            if bus is None:
                return
            last = f"{bus.domain}:{bus.number}:{token['device']}"
            name = line[at:]
            is_named = name.startswith("  ")
            found[last] = Node(bus.path, name.strip() if is_named else "")
            if is_named:
                return
        else:
            domain = token["domain"] or (bus.domain if bus else "0000")
            is_root = token["domain"] is not None or bus is None or last is None
            path = () if is_root or bus is None or last is None else (*bus.path, last)
            bus, last, first = (
                _Bus(domain[-4:] if domain.startswith("0000") else domain, token["bus"], path),
                None,
                False,
            )
