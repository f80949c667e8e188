"""Network cards that carry the traffic between the GPUs of hosts, by their place among the GPUs; never by a name.

A card below a PCIe switch with a GPU is one, and so are equal cards that are as many as the GPUs on every NUMA node:
on Grace each GPU and each card has a root port of its own. EFA is made for this traffic alone (EC2 user guide), and a
guest sees no switches. The role of any other card is not known.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.model.host.hardware import PciDevice
from gpucheck.model.host.network import RdmaDevice

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


def below_one_switch(a: PciDevice, b: PciDevice) -> bool:
    """Return whether two functions have a PCIe switch above them in common."""
    return len(a.path) >= SHARED and a.path[:SHARED] == b.path[:SHARED]


def cards_of_gpus(devices: Iterable[RdmaDevice], pci: Iterable[PciDevice]) -> tuple[Card, ...]:
    """Return the functions that carry traffic of GPUs, ordered by bus id; none where no place shows it."""
    named = {device.name: device for device in devices if not device.is_virtual and device.kind != "switch"}
    functions = sorted(pci, key=lambda function: function.bus_id)
    gpus = [function for function in functions if function.is_nvidia_gpu]
    every = [
        _card(named[name], function, gpus)
        for function in functions
        for name in function.infiniband_names
        if name in named and (function.vendor_id, function.device_id) not in VIRTUAL
    ]
    amazon = tuple(card for card in every if gpus and card.pci.vendor_id == AMAZON)
    return tuple(card for card in every if card.gpus) or amazon or _one_a_gpu(every, gpus)


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
    """Return the cards in groups that can be compared."""
    groups: dict[tuple[str | None, ...], list[Card]] = {}
    for card in cards:
        groups.setdefault(card.product, []).append(card)
    return list(groups.values())
