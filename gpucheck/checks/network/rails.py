"""Network cards by GPU: has every GPU a network card below its PCIe switch, as the other GPUs have?

Source: the bridges above GPUs and network cards in sysfs. A host with fewer cards than switches is normal: only where
most switches with a GPU have a card is a switch without one a finding. Of systems that DMI names, such as GB200, the
number of cards is known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus, quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.systems import DMI_FILES, KnownSystem
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import PciDevice
from gpucheck.topology.nics import SHARED, SLINGSHOT, below_one_switch, system_of

# GPUs and network cards below one switch
Below = tuple[list[PciDevice], list[PciDevice]]
NAME = "nic-rails"
INFINIBAND, EFA, MELLANOX = "0207", "1d0f:efa", "15b3"  # PCI class, ids, vendor
# One switch in four may lack its card.
USUAL, FEW = 2, 3


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each GPU without a card, and for each card without an RDMA device; or one for the host."""
    cards = [device for device in facts.pci if device.is_network_card]
    system = system_of(facts)
    if not any(card.infiniband_names for card in cards):
        yield _no_rdma(facts, cards, system)
        return
    if facts.system.container is None and (one := _of_known(system, facts)):
        yield one
        return
    if not any(device.is_nvidia_gpu for device in facts.pci):
        yield no_gpu_on_the_bus(NAME)
        return
    switches = _switches(facts)
    with_rdma = [below for below in switches if any(card.infiniband_names for card in below[1])]
    without = [below for below in switches if below not in with_rdma]
    evidence = tuple(_line(gpus, nics) for gpus, nics in switches)
    host = Subject(check=NAME, evidence=evidence)
    few = _too_few(host, system, cards) if facts.system.container is None else None
    if len(with_rdma) < USUAL or len(without) * FEW > len(with_rdma):
        yield few or host.skips("network.no-card-per-switch", f"{len(with_rdma)} of {len(switches)} switches")
        return
    products = {_product(nic) for _, nics in with_rdma for nic in nics if nic.infiniband_names}
    for gpus, nics in without:
        equal = [nic for nic in nics if _product(nic) in products]
        for nic in equal:
            yield _unusable(msgspec.structs.replace(host, name=f"nic:{nic.bus_id}"), facts, nic)
        for gpu in () if equal else gpus:
            subject = msgspec.structs.replace(host, name=f"gpu:{gpu.bus_id}")
            yield subject.fails("network.gpu-without-card", "no network card", "a network card", switch=gpu.path[1])
    fewer = [] if without else _fewer(switches)
    for gpus, count, usual in fewer:
        for gpu in gpus:
            subject = msgspec.structs.replace(host, name=f"gpu:{gpu.bus_id}", unit="RDMA devices")
            yield subject.warns("network.gpu-with-fewer-cards", count, usual, switch=gpu.path[1])
    if not without and not fewer:
        yield few or host.passes(f"a network card below each of {len(switches)} switches")


def _fewer(switches: list[Below]) -> list[tuple[list[PciDevice], int, int]]:
    """Return GPUs of the switches that have fewer RDMA devices than is usual: their number, and the usual one."""
    counts = [sum(len(nic.infiniband_names) for nic in nics) for _, nics in switches]
    usual, times = Counter(counts).most_common(1)[0]
    few = [(gpus, count, usual) for (gpus, _), count in zip(switches, counts, strict=True) if count < usual]
    # A storage card below some of the switches makes more than one of them differ, but not one by less and one by more.
    moved = sum(counts) == usual * len(counts) and times == len(counts) - 2
    return few if len(few) == 1 and times >= FEW and (times == len(counts) - 1 or moved) else []


def _too_few(host: Subject, system: KnownSystem | None, cards: Iterable[PciDevice]) -> Finding | None:
    """Where the switches do not show which cards are missing, of a system whose number of cards is known."""
    own = [one for one in cards if system is not None and system.has(one.vendor_id, one.device_id)]
    count = sum(len(one.infiniband_names) for one in own)
    if system is None or system.chosen or not 0 < count < system.count:
        return None
    mixed = any(system.stores(one.vendor_id, one.device_id) for one in own)
    return None if mixed else host.warns("network.cards-missing", count, system.count, system=system.name)


def _of_known(system: KnownSystem | None, facts: Facts) -> Finding | None:
    """Cards of a known system that has each at a root port of its own, as Grace: are all there, and near its GPUs?

    Elsewhere the switches of the GPUs show which card is not there.
    """
    if system is None or system.chosen:
        return None
    own = [one for one in facts.pci if system.has(one.vendor_id, one.device_id) and one.infiniband_names]
    gpus = [one for one in facts.pci if one.is_nvidia_gpu]
    if not own or any(below_one_switch(card, gpu) for card in own for gpu in gpus):
        return None
    lines = tuple(f"{', '.join(card.infiniband_names)} {card.bus_id}, NUMA node {card.numa_node}" for card in own)
    host = Subject(check=NAME, evidence=lines)
    if len(own) < system.count:
        return host.warns("network.cards-missing", len(own), system.count, system=system.name)
    wanted = Counter(gpu.numa_node for gpu in gpus)
    cards = Counter(card.numa_node for card in own)
    each, rest = divmod(system.count, system.gpus)
    # NUMA nodes of a guest are what its host made up.
    unknown = facts.system.virtual is not None or None in wanted or None in cards
    if len(own) > system.count or rest or unknown or len(gpus) < system.gpus:
        return None
    if cards == Counter({node: count * each for node, count in wanted.items()}):
        return host.passes(f"{len(own)} network cards, on each NUMA node as many as GPUs")
    return host.warns("network.cards-at-other-nodes", _by_node(cards), _by_node(wanted), system=system.name)


def _by_node(counts: Counter[int | None]) -> str:
    return ", ".join(f"{count} at NUMA node {node}" for node, count in sorted(counts.items(), key=str))


def _no_rdma(facts: Facts, cards: list[PciDevice], system: KnownSystem | None) -> Finding:
    """No card of the host has an RDMA device. InfiniBand cards and EFA are of no use without.

    Of Ethernet cards, ConnectX below the switches of GPUs are there for RDMA: several, as one may be for the front end.
    """
    gpus = [device for device in facts.pci if device.is_nvidia_gpu]
    near = [one for one in cards if one.vendor_id == MELLANOX and any(below_one_switch(one, gpu) for gpu in gpus)]
    several = len({card.bus_id.rpartition(".")[0] for card in near}) >= USUAL
    useless = [
        card
        for card in cards
        if card.class_id.startswith(INFINIBAND)
        or f"{card.vendor_id}:{card.device_id}".startswith(EFA)
        or (system is not None and system.has(card.vendor_id, card.device_id))
        or (several and card in near)
    ]
    lines = tuple(f"{card.bus_id} {', '.join(card.net_names) or card.driver}: no RDMA device" for card in cards)
    host = Subject(check=NAME, evidence=lines)
    if system is not None and not system.count:
        return host.skips("network.no-rdma-by-design", 0, system=system.name)
    if not useless:
        slingshot = sum((card.vendor_id, card.device_id) in SLINGSHOT for card in cards)
        code = "network.slingshot-not-read" if slingshot else "network.no-rdma-device"
        return host.skips(code, slingshot)
    if facts.system.container is not None:
        return host.unknown("network.rdma-not-visible", 0, container=facts.system.container)
    return host.warns("network.no-rdma-of-any-card", 0, len(useless))


def _unusable(subject: Subject, facts: Facts, nic: PciDevice) -> Finding:
    device = ", ".join(nic.net_names) or nic.bus_id
    if facts.system.container is not None:
        return subject.unknown("network.rdma-not-visible", container=facts.system.container)
    return subject.fails("network.no-rdma-of-card", "no RDMA device", "an RDMA device", device=device)


def _product(nic: PciDevice) -> tuple[str, str]:
    return nic.vendor_id, nic.device_id


def _switches(facts: Facts) -> list[Below]:
    """Return GPUs and network cards of each switch with a GPU: the last one above it, else the first."""
    gpus = [device for device in facts.pci if device.is_nvidia_gpu and len(device.path) >= SHARED]
    cards = [device for device in facts.pci if device.is_network_card]
    last = _below({gpu.path[:-1] for gpu in gpus if len(gpu.path) > SHARED}, gpus, cards)
    return last if any(nics for _, nics in last) else _below({gpu.path[:SHARED] for gpu in gpus}, gpus, cards)


def _below(switches: Iterable[tuple[str, ...]], *kinds: list[PciDevice]) -> list[Below]:
    gpus, cards = ([[one for one in kind if one.path[: len(way)] == way] for way in sorted(switches)] for kind in kinds)
    return list(zip(gpus, cards, strict=True))


def _line(gpus: list[PciDevice], nics: list[PciDevice]) -> str:
    cards = ", ".join(f"{', '.join(nic.infiniband_names) or 'no RDMA device'} {nic.bus_id}" for nic in nics)
    return f"switch {gpus[0].path[1]}: GPU {', '.join(gpu.bus_id for gpu in gpus)}; network card {cards or 'none'}"


LIMITS = (f"FAIL where at least {FEW} times as many switches have a card as have none",)
CHECK = quick_check(
    NAME, "hardware network", evaluate, ("pci", "system", *(f"text:{path}" for path in DMI_FILES)), limits=LIMITS
)
