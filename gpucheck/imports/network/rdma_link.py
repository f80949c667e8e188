"""rdma link (iproute2) and ibdev2netdev: one line for each port."""

import re

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.network._ports import Port, part_of
from gpucheck.model.host.network import RdmaPort
from gpucheck.model.paste import Part

LINK = regex(
    r"^\s{0,12}(?:link |\d{1,3}/\d{1,3}: )(?P<name>[\w.-]{1,60})/(?P<port>\d{1,3}):? "
    r".{0,200}?\bstate (?P<state>[A-Z_]{2,20})\b"
    r"(?:.{0,100}?\bphysical_state (?P<physical>[A-Z_]{2,30}))?"
)
NETDEV = regex(
    r"^\s{0,12}(?P<name>[\w.-]{1,60}) port (?P<port>\d{1,3}) ==> (?P<netdev>[\w.-]{1,60}) \((?P<state>Up|Down)\)\s*$"
)


def parse(lines: list[str]) -> Part:
    """The ports. Raises ImportProblem."""
    links = [match for line in lines if (match := LINK.match(line))]
    found = [
        Port(
            match["name"], RdmaPort(number=int(match["port"]), state=match["state"].lower(), physical=_physical(match))
        )
        for match in links
    ]
    # ibdev2netdev prints the state of the interface, which an IPoIB interface does not have.
    known = {(match["name"], match["port"]) for match in links}
    for match in filter(None, map(NETDEV.match, lines)):
        if (match["name"], match["port"]) not in known:
            state = "active" if match["state"] == "Up" else "down"
            found.append(Port(match["name"], RdmaPort(number=int(match["port"]), state=state)))
    if not found:
        raise absent("RDMA link", "no line is one of rdma link", "Give: rdma link")
    return part_of(found)


def _physical(match: re.Match[str]) -> str | None:
    return (match["physical"] or "").lower() or None


def _is_line(line: str) -> bool:
    return LINK.match(line) is not None or NETDEV.match(line) is not None


KIND = Kind(
    name="rdma-link",
    title="the output of rdma link or ibdev2netdev",
    parse=parse,
    hints=("state ", " ==> "),
    line=_is_line,
)
