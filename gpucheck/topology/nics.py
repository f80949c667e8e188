"""Network cards: which carry traffic of GPUs, and what limits a transfer between two."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.knowledge import gpu_by_pci_id, pcie_gb_s
from gpucheck.knowledge.systems import DMI_FILES, KnownSystem, known_system
from gpucheck.model.diagnosis.observations import NicResult, ObservedNic, Port
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import PciDevice
from gpucheck.model.host.network import RdmaDevice

NEEDS = ("rdma", "pci", *(f"text:{path}" for path in DMI_FILES))
# A switch of several GPUs begins below the root port.
SHARED = 2
ENOUGH = 2
# The vendor of EFA.
AMAZON = "1d0f"
# Slingshot, Cassini 1 and 2: its driver cxi has network interfaces and no RDMA device.
SLINGSHOT = (("17db", "0501"), ("1590", "0371"))
# Virtual functions as a guest sees them, ConnectX-4 to -7: drivers/net/ethernet/mellanox/mlx5/core/main.c of Linux.
VIRTUAL = {("15b3", device) for device in ("1014", "1016", "1018", "101a", "101c", "101e")}


class Card(NamedTuple):
    """A function of a network card that carries traffic of GPUs. gpus: bus ids of those below the same switch, or none.

    product: equal for functions that can be compared: product, board, InfiniBand or Ethernet, and which of a card.
    """

    device: RdmaDevice
    pci: PciDevice
    gpus: tuple[str, ...]
    product: tuple[str | None, ...]

    @property
    def model(self) -> tuple[str, str]:
        """Vendor and device number of PCI, which cards of several boards may share."""
        return self.pci.vendor_id, self.pci.device_id

    @property
    def slot(self) -> str:
        """What all functions of one card have in common."""
        return self.pci.bus_id.rpartition(".")[0]


def variables(cards: Iterable[Card]) -> tuple[str, ...]:
    """Return what has NCCL and UCX use these cards, where a port is active; none without such a card.

    NCCL uses EFA through the plugin aws-ofi-nccl and libfabric (EC2 user guide, "Get started with EFA and NCCL"); its
    own names of devices do not apply then. With ``=`` NCCL compares whole names; without it mlx5_1 is the beginning of
    mlx5_10, too.
    """
    cards = tuple(cards)
    ports = [(card.device.name, port.number) for card in cards for port in card.device.ports if port.is_active]
    if not ports:
        return ()
    if all(card.pci.vendor_id == AMAZON for card in cards):
        return ("FI_PROVIDER=efa",)
    names = dict.fromkeys(name for name, _ in ports)
    return (
        f"NCCL_IB_HCA=={','.join(names)}",
        f"UCX_NET_DEVICES={','.join(f'{name}:{number}' for name, number in ports)}",
    )


class Role(NamedTuple):
    """What a device is used for, as its place, its interface or the known system shows it.

    ``compute virtual firmware management storage unused unknown``, or ``bond`` for a leg of one.
    """

    name: str
    reason: str


def system_of(facts: Facts) -> KnownSystem | None:
    return known_system(facts.texts, [device.device_id for device in facts.pci if device.is_nvidia_gpu])


def roles(facts: Facts) -> dict[str, Role]:
    """Return the role of each RDMA device with a PCI function. A name states nothing: it changes with each boot."""
    system = system_of(facts)
    own = {card.device.name: card for card in cards_of_gpus(facts)}
    functions = {name: function for function in facts.pci for name in function.infiniband_names}
    with_interface = (one for one in facts.rdma if one.name in functions and functions[one.name].net_names)
    # Link layers of which a device has an interface; InfiniBand without IPoIB has none at all.
    usual = {port.link_layer for one in with_interface for port in one.ports}
    return {
        device.name: _of_gpus(own[device.name], system)
        if device.name in own
        else _role(device, functions[device.name], usual, system)
        for device in facts.rdma
        if device.name in functions
    }


def _of_gpus(card: Card, system: KnownSystem | None) -> Role:
    if card.gpus:
        return Role("compute", "below the PCIe switch of a GPU")
    if system is not None and system.has(*card.model):
        return Role("compute", f"{system.name} has {system.count} of these cards for its GPUs")
    efa = card.pci.vendor_id == AMAZON
    return Role("compute", "EFA of a guest that has GPUs" if efa else "as many equal cards as GPUs")


def _role(device: RdmaDevice, function: PciDevice, usual: set[str | None], system: KnownSystem | None) -> Role:
    """The role of a card that is not for the traffic of GPUs."""
    if device.is_virtual or (function.vendor_id, function.device_id) in VIRTUAL:
        return Role("virtual", "virtual function (SR-IOV)")
    owned = not function.net_names and not usual.isdisjoint(port.link_layer for port in device.ports)
    if device.kind == "switch" or owned:
        return Role("firmware", "no network interface, as functions of the NVSwitch bridge have none")
    if device.route:
        return Role("management", "its interface has the default route")
    if device.bond is not None:
        return Role("bond", f"its interface is a leg of {device.bond}")
    if system is not None and system.stores(function.vendor_id, function.device_id):
        return Role("storage", f"{system.name} has these cards for storage and management")
    if not any(port.is_active for port in device.ports):
        return Role("unused", "no port is active")
    return Role("unknown", "no GPU below its PCIe switch, as with cards for storage or management")


def may_have_gpudirect(facts: Facts) -> bool:
    """Whether a GPU of the host may have GPUDirect RDMA: GeForce has none (NVIDIA/gdrcopy#211)."""
    models = [gpu_by_pci_id(device.device_id) for device in facts.pci if device.is_nvidia_gpu]
    return not models or not all(model is not None and model.cls == "geforce" for model in models)


def below_one_switch(a: PciDevice, b: PciDevice) -> bool:
    return len(a.path) >= SHARED and a.path[:SHARED] == b.path[:SHARED]


def cards_of_gpus(facts: Facts) -> tuple[Card, ...]:
    """Return the functions that carry traffic of GPUs, ordered by bus id; none where nothing shows it."""
    named = {device.name: device for device in facts.rdma if not device.is_virtual and device.kind != "switch"}
    functions = sorted(facts.pci, key=lambda function: function.bus_id)
    gpus = [function for function in functions if function.is_nvidia_gpu]
    shown = [
        _card(named[name], function, gpus)
        for function in functions
        for name in function.infiniband_names
        if name in named
    ]
    # A guest may have nothing but virtual functions, as ND series of Azure.
    every = [card for card in shown if card.model not in VIRTUAL] or shown
    amazon = tuple(card for card in every if gpus and card.pci.vendor_id == AMAZON)
    known = _of_system(every, system_of(facts))
    return tuple(card for card in every if card.gpus) or amazon or known or _one_a_gpu(every, gpus)


def _of_system(cards: list[Card], system: KnownSystem | None) -> tuple[Card, ...]:
    """Cards of a known system; none if some of the product may be for something else."""
    own = tuple(card for card in cards if system is not None and system.has(*card.model))
    sure = system is not None and len(own) <= system.count and not any(system.stores(*card.model) for card in own)
    return own if sure else ()


def _card(device: RdmaDevice, function: PciDevice, gpus: list[PciDevice]) -> Card:
    near = tuple(gpu.bus_id for gpu in gpus if below_one_switch(function, gpu))
    layers = {port.link_layer for port in device.ports}
    layer = layers.pop() if len(layers) == 1 else None
    number = function.bus_id.rpartition(".")[2]
    return Card(device, function, near, (function.vendor_id, function.device_id, device.board, layer, number))


def _one_a_gpu(cards: list[Card], gpus: list[PciDevice]) -> tuple[Card, ...]:
    wanted = Counter(gpu.numa_node for gpu in gpus)
    fitting = [
        same
        for same in groups_of(cards)
        if len(same) >= ENOUGH and None not in wanted and Counter(card.pci.numa_node for card in same) == wanted
    ]
    return tuple(fitting[0]) if len(fitting) == 1 else ()


def groups_of(cards: Iterable[Card]) -> list[list[Card]]:
    groups: dict[tuple[str | None, ...], list[Card]] = {}
    for card in cards:
        groups.setdefault(card.product, []).append(card)
    return list(groups.values())


# What a transfer between network cards can reach: the least of port, PCIe path and GPU link. Pure.
#
# Payload of PCIe: packets of 256 bytes with 24 of headers (PCIe base specification 2.2). Of a port at its MTU: 30 bytes
# of headers with InfiniBand, 82 with RoCE v2 (InfiniBand architecture 1.7, annex A17), frame and gap included.
PACKET, PACKET_HEADER = 256, 24
HEADERS = {"infiniband": 30, "ethernet": 82}
# Where it is not known: the default of an Ethernet interface with 1500 bytes.
LEAST_MTU = 1024


class Limit(NamedTuple):
    """gb_s: GB/s of payload in one direction. basis: what sets it. port: the PCIe link, None for the card's port."""

    gb_s: float
    basis: str
    port: Port | None = None


def expected(
    nics: Sequence[ObservedNic], result: NicResult, *, best: bool = False, virtual: bool = False
) -> Limit | None:
    """Return the lowest limit of a transfer; None without the rate of a port.

    best: of PCIe links as both their ends allow, not as trained. virtual: a guest is shown no real PCIe links.
    """
    both = [nics[number] for number in dict.fromkeys(result.nics)]
    ports = [_of_port(nic) for nic in both]
    limits = [limit for limit in ports if limit is not None]
    if len(limits) < len(ports):
        return None
    if not virtual:
        # To and from the memory of a GPU the data stays below the switch that both share: card and slot remain.
        links = [port for nic in both for port in (nic.path[-2:] if result.gpu else nic.path)]
        users = nics if result.together else both
        limits += filter(None, (_of_link(port, _users(port, users), best=best) for port in links))
        if result.gpu is not None:
            limits += filter(None, [_of_link(result.gpu, 1, best=best)])
    return min(limits, key=lambda limit: limit.gb_s)


def _of_port(nic: ObservedNic) -> Limit | None:
    if nic.rate_gbit_s is None:
        return None
    mtu = nic.mtu or LEAST_MTU
    share = mtu / (mtu + HEADERS.get(nic.link_layer or "", max(HEADERS.values())))
    return Limit(nic.rate_gbit_s / 8 * share, f"port {nic.rate_gbit_s:g} Gb/s, MTU {mtu}")


def _users(port: Port, nics: Iterable[ObservedNic]) -> int:
    return max(1, sum(any(one.bus_id == port.bus_id for one in nic.path) for nic in nics)) if port.bus_id else 1


def _of_link(port: Port, users: int, *, best: bool) -> Limit | None:
    gen, width = (port.max_gen or port.gen, port.max_width or port.width) if best else (port.gen, port.width)
    if gen is None or width is None:
        return None
    try:
        gb_s = pcie_gb_s(gen, width) * PACKET / (PACKET + PACKET_HEADER)
    except LookupError:
        return None
    shared = f", shared by {users}" if users > 1 else ""
    return Limit(gb_s / users, f"PCIe Gen{gen} x{width} of {port.bus_id or 'the card'}{shared}", port)
