"""GPU models of the generated machines and the PCIe limits they live with.

Link figures: published tables of PCIe after line coding and of NVLink payload per link and direction, in GB/s. They
are stated here again because `gpucheck diagnose` has its own: a mistake in one must not hide in the other.
"""

from dataclasses import dataclass

# GB/s per lane and direction after line coding.
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938}


def raw(gen: int, width: int) -> float:
    """Return the limit of a PCIe link in GB/s per direction."""
    return LANE[gen] * width


@dataclass(frozen=True)
class Card:
    """A GPU model: PCIe generation, and its NVLinks with the payload of one in GB/s per direction.

    geforce: the stock driver grants no peer access over PCIe. bar1_mib: with Resizable BAR; 256 without.
    """

    name: str
    gen: int
    links: int = 0
    link_gb_s: float = 0.0
    nvlink_gen: int = 0
    geforce: bool = False
    bar1_mib: int = 32768


PCIE_CARDS = (
    Card("Tesla P100-PCIE-16GB", 3, bar1_mib=16384),
    Card("Tesla V100-PCIE-32GB", 3, bar1_mib=32768),
    Card("Tesla T4", 3, bar1_mib=256),
    Card("NVIDIA GeForce RTX 2080 Ti", 3, 2, 25.0, 2, geforce=True, bar1_mib=256),
    Card("NVIDIA A10", 4),
    Card("NVIDIA A40", 4, 4, 14.0625, 3, bar1_mib=65536),
    Card("NVIDIA L4", 4),
    Card("NVIDIA L40S", 4, bar1_mib=65536),
    Card("NVIDIA RTX 6000 Ada Generation", 4, bar1_mib=65536),
    Card("NVIDIA A100 80GB PCIe", 4, 12, 25.0, 3, bar1_mib=131072),
    Card("NVIDIA GeForce RTX 3090", 4, 4, 14.0625, 3, geforce=True),
    Card("NVIDIA GeForce RTX 4090", 4, geforce=True),
    Card("NVIDIA GeForce RTX 5090", 5, geforce=True),
    Card("NVIDIA RTX PRO 6000 Blackwell Server Edition", 5, bar1_mib=131072),
    Card("NVIDIA H100 PCIe", 5, 12, 25.0, 4, bar1_mib=131072),
)
DESKTOP_CARDS = tuple(card for card in PCIE_CARDS if card.geforce or "RTX" in card.name)
SERVER_CARDS = tuple(card for card in PCIE_CARDS if card.name != "NVIDIA GeForce RTX 2080 Ti")

BRIDGED_CARDS = (
    Card("NVIDIA A100 80GB PCIe", 4, 12, 25.0, 3, bar1_mib=131072),
    Card("NVIDIA GeForce RTX 3090", 4, 4, 14.0625, 3, geforce=True),
    Card("NVIDIA RTX A6000", 4, 4, 14.0625, 3, bar1_mib=65536),
    Card("NVIDIA A40", 4, 4, 14.0625, 3, bar1_mib=65536),
    Card("NVIDIA H100 NVL", 5, 12, 25.0, 4, bar1_mib=131072),
)
# Card, and links of each pair of a board of four.
MESH_CARDS = (
    (Card("NVIDIA A100-SXM4-40GB", 4, 12, 25.0, 3, bar1_mib=65536), 4),
    (Card("NVIDIA H100 80GB HBM3", 5, 18, 25.0, 4, bar1_mib=131072), 6),
)
NVSWITCH_CARDS = (
    Card("NVIDIA A100-SXM4-80GB", 4, 12, 25.0, 3, bar1_mib=131072),
    Card("NVIDIA H100 80GB HBM3", 5, 18, 25.0, 4, bar1_mib=131072),
    Card("NVIDIA H200", 5, 18, 25.0, 4, bar1_mib=262144),
    Card("NVIDIA B200", 5, 18, 50.0, 5, bar1_mib=262144),
)
