"""Addresses of network ports: has each port of the GPUs what its equals have: LID, P_Key, routed GID and MTU?

Source: lid, pkeys and gids of /sys/class/infiniband/<device>/ports/<number>, and mtu of the interface. Which partition
or MTU is right differs from cluster to cluster: a port is compared with the same port of equal cards. An active
InfiniBand port without a LID is known to no subnet manager. A fixed NCCL_IB_GID_INDEX fits
all ports, or those whose link returned have other indexes in use (NVIDIA/nccl#2157).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import about, cards, lines
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Alternative
from gpucheck.model.host.network import RdmaDevice, RdmaPort
from gpucheck.topology.nics import AMAZON, NEEDS, Card, groups_of, roles, variables

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
        if code == "network.mtu-differs" and count >= ENOUGH and 2 * count <= known.total():
            yield from _of_mixed(same)
        # Of two that differ either may be the odd one.
        if count < ENOUGH or 2 * count <= known.total():
            continue
        for (card, port), value in zip(same, values, strict=True):
            if value not in (None, usual, ROUTED):
                yield about(NAME, card).warns(code, value, usual, device=card.device.name, port=port.number)


def _of_mixed(same: list[tuple[Card, RdmaPort]]) -> Iterator[Finding]:
    """No MTU is in the majority. Where a GPU has cards with both, one of them may be for another network."""
    by_gpu: dict[str, set[int | None]] = {}
    for card, port in same:
        for gpu in card.gpus or (card.slot,):
            by_gpu.setdefault(gpu, set()).add(port.mtu)
    if all(len(values) == 1 for values in by_gpu.values()):
        lines = tuple(f"{card.device.name}: MTU {port.mtu}" for card, port in same)
        seen = " and ".join(map(str, sorted({port.mtu for _, port in same if port.mtu})))
        yield Subject(check=NAME, evidence=lines).warns("network.mtu-mixed", seen, "one MTU")


def of_printed(devices: Iterable[RdmaDevice]) -> Iterator[Finding]:
    """Ports that a tool printed as active InfiniBand without a LID. EFA, with GUIDs of zeros, has none."""
    for device in devices:
        for port in device.ports if device.card is None or device.card.removeprefix("0x").strip("0:") else ():
            if port.is_active and port.link_layer == "infiniband" and port.lid is not None and port.lid not in LIDS:
                subject, values = Subject(check=NAME, name=f"nic:{device.name}"), {"device": device.name}
                yield subject.unknown("network.lid-printed", f"LID 0x{port.lid:x}", "a LID", port=port.number, **values)


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


CHOICE = "nic-choice"
VARIABLE = "NCCL_IB_HCA"
ALTERNATIVES = (
    Alternative(cause="leftover-environment", would_show=f"jobs of other users do not set {VARIABLE}"),
    Alternative(cause="nccl-policy", would_show="the documentation of your cluster asks for these devices"),
)


class Choice(NamedTuple):
    """What the value states. names: of devices, each with a port, empty for all of its ports."""

    names: tuple[tuple[str, str], ...]
    excludes: bool
    exact: bool

    def takes(self, device: RdmaDevice) -> bool:
        """Whether NCCL opens a port of it; it leaves out those that are not active, where others are."""
        numbers = [str(port.number) for port in device.ports if port.is_active] or [""]
        return any(self._names(device.name, number) is not self.excludes for number in numbers)

    def _names(self, device: str, number: str) -> bool:
        return any(self.fits(name, device) and (not number or port in ("", number)) for name, port in self.names)

    def fits(self, name: str, device: str) -> bool:
        return device == name if self.exact else device.startswith(name)


def choice_of(value: str) -> Choice:
    """Return what NCCL reads of a value; without names it takes every device."""
    text = value.strip()
    excludes = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    entries = (entry.split(":") for entry in text.removeprefix("=").split(","))
    names = tuple((name.strip(), "".join(more[:1]).strip()) for name, *more in entries if name.strip())
    return Choice(names, excludes or not names, exact)


def choice(facts: Facts) -> Iterator[Finding]:
    """NCCL_IB_HCA: does the environment have NCCL use the network cards of the GPUs, all of them and no others?

    Source: environment variables of this process, and NCCL's documentation of NCCL_IB_HCA: a list of devices, each with
    a port if wanted; ``^`` in front excludes, ``=`` takes whole names. Without ``=`` a name is the beginning of names:
    mlx5_1 also takes mlx5_10 to mlx5_19.
    """
    value = facts.environment.get(VARIABLE)
    found, none = cards(CHOICE, facts)
    if value is None:
        yield Subject(check=CHOICE).skips("network.choice-is-automatic")
        return
    if none is not None:
        yield none
        return
    if all(card.pci.vendor_id == AMAZON for card in found):
        yield Subject(check=CHOICE).skips("network.choice-of-plugin")
        return
    choice = choice_of(value)
    own = [card.device.name for card in found if any(port.is_active for port in card.device.ports)]
    every = [device.name for device in facts.rdma]
    taken = [device.name for device in facts.rdma if choice.takes(device)]
    unknown = [name for name, _ in choice.names if not any(choice.fits(name, device) for device in every)]
    wanted = variables(found)[0].partition("=")[2] if own else "none"
    used = roles(facts)
    shown = [f"{name} ({used[name].name})" if name in used else name for name in taken]
    host = Subject(check=CHOICE, evidence=(f"{VARIABLE}={value}", f"takes: {', '.join(shown) or 'no device'}"))
    others = [name for name in taken if name not in own]
    left = [name for name in own if name not in taken]
    if unknown and not choice.excludes:
        yield _finding(host, "network.choice-not-there", ", ".join(unknown), wanted)
    elif others:
        yield _finding(host, "network.choice-of-others", ", ".join(others), wanted)
    elif left:
        yield _finding(host, "network.choice-leaves-out", ", ".join(left), wanted)
    else:
        yield host.passes(f"{len(taken)} network cards of the GPUs")


def _finding(host: Subject, code: str, devices: str, wanted: str) -> Finding:
    return host.warns(
        code, host.evidence[0], f"{VARIABLE}={wanted}", alternatives=ALTERNATIVES, devices=devices, line=wanted
    )


CHECK = quick_check(NAME, "software network", evaluate, (*NEEDS, "environment"))
CHECKS = (CHECK, quick_check(CHOICE, "software network", choice, (*NEEDS, "environment")))
