"""GID tables as show_gids prints them, and as the GID lines of ibv_devinfo -v alone."""

import ipaddress
import re
from collections.abc import Iterator

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

NAME = "show_gids"
VERBOSE = regex(
    r"^\s{0,40}GID\[\s{0,4}(?P<index>\d{1,3})\]:\s{1,24}(?P<gid>[0-9a-fA-F:.]{2,45}|ip-\w{8})"
    r"(?:, (?:IB/)?RoCE v(?P<version>[12]))?\s*$"
)
ROW = regex(
    r"^\s{0,8}(?P<device>[\w.-]{1,60})\s{1,16}(?P<port>\d{1,3})\s{1,16}(?P<index>\d{1,3})\s{1,16}"
    r"(?P<gid>[0-9a-f]{4}(?::[0-9a-f]{4}){7}|ip-\w{8})\s{1,40}(?:(?:[\d.]{7,15}|ip-\w{8})\s{1,24})?v(?P<version>[12])\b"
)
AROUND = regex(r"^\s{0,8}(?:DEV\s{1,16}PORT\s{1,16}INDEX\s|---\s{1,16}----\s{1,16}-----|n_gids_found=\d)")
# Version and whether the address is routed, by index.
Table = dict[int, tuple[str | None, bool]]
MOST_TABLES = 256


def parse(lines: list[str]) -> Part:
    """Return which entries are routed, and a message if two tables of one port differ. Raises ImportProblem."""
    tables = list(_tables(lines))[:MOST_TABLES]
    if not tables:
        raise absent("GID table", "no line has an index and a GID", "Give: show_gids")
    routed = sorted(
        {i for _, table in tables for i, (version, is_routed) in table.items() if version == "2" and is_routed}
    )
    where = f": RoCE v2 of a routed address at index {', '.join(map(str, routed))}" if routed else ""
    return Part(messages=tuple(_differing(tables)), looked_at=(f"{counted(len(tables), 'GID table')}{where}",))


def _tables(lines: list[str]) -> Iterator[tuple[str, Table]]:
    """Each table with its port, empty where no line names it. An index that does not rise begins the next."""
    port, table = "", Table()
    for match in filter(None, map(_entry, lines)):
        index, own = int(match["index"]), "/".join(match.groupdict().get(name) or "" for name in ("device", "port"))
        if table and (own != port or index <= max(table)):
            yield port, table
            table = {}
        port = own
        table[index] = (match["version"], _is_routed(match["gid"]))
    if table:
        yield port, table


def _entry(line: str) -> re.Match[str] | None:
    return VERBOSE.match(line) or ROW.match(line)


def _is_routed(gid: str) -> bool:
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return False
    return not address.is_link_local and int(address) != 0


def _differing(tables: list[tuple[str, Table]]) -> Iterator[Message]:
    first: dict[str, Table] = {}
    for port, table in tables:
        known = first.setdefault(port, table)
        # Addresses differ between hosts, and a redacted one (ip-0a1b2c3d) is not known to be routed.
        if {i: version for i, (version, _) in known.items()} != {i: version for i, (version, _) in table.items()}:
            text = f"GID tables with {len(known)} and {len(table)} entries"
            yield Message(key=f"{NAME}.differ", text=text)
            return


KIND = Kind(
    name=NAME,
    title="the output of show_gids",
    parse=parse,
    hints=("GID[", "INDEX", "n_gids_found", " v1", " v2"),
    line=lambda line: _entry(line) is not None or AROUND.match(line) is not None,
)
