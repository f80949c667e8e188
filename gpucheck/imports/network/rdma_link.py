"""rdma link (iproute2) and ibdev2netdev: one line for each port."""

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.network._ports import Port, part_of
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
    """The ports, each once. Raises ImportProblem."""
    found: dict[str, Port] = {}
    for number, line in enumerate(lines, start=1):
        link, netdev = LINK.match(line), NETDEV.match(line)
        match = link or netdev
        if match is None:
            continue
        name = f"{match['name']} port {match['port']}"
        state = match["state"].lower()
        port = found.setdefault(name, Port(name, number))
        if link is not None:
            port.state, port.physical = state, (link["physical"] or "").lower() or None
        elif port.state is None:
            port.state = "active" if state == "up" else "down"
    if not found:
        raise absent("RDMA link", "no line is one of rdma link", "Give: rdma link")
    return part_of(list(found.values()))


def _is_line(line: str) -> bool:
    return LINK.match(line) is not None or NETDEV.match(line) is not None


KIND = Kind(
    name="rdma-link",
    title="the output of rdma link or ibdev2netdev",
    parse=parse,
    hints=("state ", " ==> "),
    line=_is_line,
)
