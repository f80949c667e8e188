"""Addresses of network ports: has each port of the GPUs what its equals have: LID, P_Key, routed GID and MTU?

Source: lid, pkeys and gids of /sys/class/infiniband/<device>/ports/<number>, and mtu of the interface. Which partition
or MTU is right differs from cluster to cluster: a port is compared with the same port of equal cards. An active
InfiniBand port without a LID is known to no subnet manager. A fixed NCCL_IB_GID_INDEX fits
all ports, or those whose link returned have other indexes in use (NVIDIA/nccl#2157).
"""

from collections import Counter
from collections.abc import Callable, Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import about, cards, lines
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaPort
from gpucheck.topology.nics import NEEDS, Card, groups_of

NAME = "nic-address"
ENOUGH = 2
# Unicast addresses of a subnet: IBTA volume 1, 4.1.3.
LIDS = range(1, 0xC000)
ROUTED = "a routed GID"
INDEX = "NCCL_IB_GID_INDEX"


# What equal ports have in common, by the code of one that differs.
FIELDS: dict[str, Callable[[RdmaPort], str | int | None]] = {
    "network.pkey-differs": lambda port: (
        None if port.pkeys is None else ", ".join(f"0x{key:04x}" for key in port.pkeys)
    ),
    "network.gid-missing": lambda port: None if port.gids is None else ROUTED if port.gids else "none",
    "network.mtu-differs": lambda port: port.mtu,
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each port that differs from its equals, or one for the host."""
    found, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    groups = [
        [(card, port) for card in same for port in card.device.ports if port.is_active] for same in groups_of(found)
    ]
    addressed = [port for same in groups for _, port in same if port.link_layer in ("infiniband", "ethernet")]
    own = [finding for same in groups for finding in _of_equals(same)]
    own += _of_index(facts.environment.get(INDEX, ""), [one for same in groups for one in same])
    yield from own
    if not addressed:
        yield Subject(check=NAME).skips("network.no-address", len(found))
    elif not own:
        host = Subject(check=NAME, evidence=tuple(line for card in found for line in lines(card.device)))
        yield host.passes(f"addresses of {len(addressed)} active ports")


def _of_equals(same: list[tuple[Card, RdmaPort]]) -> Iterator[Finding]:
    for card, port in same:
        if port.link_layer == "infiniband" and port.lid is not None and port.lid not in LIDS:
            seen = f"LID 0x{port.lid:x}"
            yield about(NAME, card).warns(
                "network.lid-missing", seen, "a LID", device=card.device.name, port=port.number
            )
    for code, value_of in FIELDS.items():
        values = [value_of(port) for _, port in same]
        known = Counter(value for value in values if value is not None)
        usual, count = known.most_common(1)[0] if known else (None, 0)
        # Of two that differ either may be the odd one.
        if count < ENOUGH or 2 * count <= known.total():
            continue
        for (card, port), value in zip(same, values, strict=True):
            if value not in (None, usual, ROUTED):
                yield about(NAME, card).warns(code, value, usual, device=card.device.name, port=port.number)


def _of_index(value: str, every: list[tuple[Card, RdmaPort]]) -> Iterator[Finding]:
    routed = [(card, port, port.gids) for card, port in every if port.gids]
    if not value.isdecimal() or not any(int(value) in gids for _, _, gids in routed):
        return
    for card, port, gids in routed:
        if int(value) not in gids:
            seen = f"routed GIDs at {', '.join(map(str, gids))}"
            yield about(NAME, card, f"{INDEX}={value}").warns(
                "network.gid-index-empty", seen, value, device=card.device.name, port=port.number, index=value
            )


CHECK = quick_check(NAME, "software network", evaluate, (*NEEDS, "environment"))
