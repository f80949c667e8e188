"""The network cards of the matrix, as nvidia-smi topo -m lists them: those that do RDMA, by device name."""

import re

from gpucheck.model.host.hardware import Gpu, Nic, PciDevice
from gpucheck.topology.pcie.classify import classify

MELLANOX = "15b3"


def network_cards(gpus: tuple[Gpu, ...], devices: dict[str, PciDevice]) -> tuple[Nic, ...]:
    """NIC0, NIC1, ... in the order of their names: one for each RDMA device.

    A Mellanox function counts without one too: a container may hide /sys/class/infiniband. Then its network interface
    names it, or its bus id.
    """
    cards = [
        (name, device)
        for device in devices.values()
        if device.is_network_card and (device.infiniband_names or device.vendor_id == MELLANOX)
        for name in device.infiniband_names or device.net_names[:1] or (device.bus_id,)
    ]
    cards.sort(key=lambda card: (_natural(card[0]), card[1].bus_id))
    near = [devices.get(gpu.pci_bus_id.lower()) for gpu in gpus]
    return tuple(
        Nic(
            label=f"NIC{i}",
            name=name,
            classes=tuple(classify(gpu, card) if gpu else None for gpu in near),
            peers=tuple("X" if i == j else _between(card, other) for j, (_, other) in enumerate(cards)),
            pci_bus_id=card.bus_id,
            numa_node=card.numa_node,
        )
        for i, (name, card) in enumerate(cards)
    )


def _between(a: PciDevice, b: PciDevice) -> str | None:
    """Two RDMA devices of one function are as near as can be."""
    cls = classify(a, b)
    return "PIX" if cls == "X" else cls


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """mlx5_10 after mlx5_9."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)
