"""What the names of GPUs mean: their links, and whether NVIDIA allows peers on PCIe."""

import re
from functools import lru_cache

from gpucheck.knowledge import GpuModel, NvLinkRate, find_gpu
from gpucheck.topology.expected import gpu_nvlink

# GeForce of Turing (RTX 20, GTX 16) and later: the stock driver has no peer-to-peer over PCIe. Pascal had it.
# Source: nccl#1127, nccl#1309, aikitoria/open-gpu-kernel-modules PR#5; nccl#257 for Pascal.
GEFORCE = re.compile(r"\b(?:RTX\s*[2-5]0[5-9]0|GTX\s*16[1-6]0)", re.IGNORECASE)

# Families for boards that the table does not list. NVLink by compute capability; PCIe as the boards are sold, small
# models with eight lanes left out on purpose.
NVLINK_FAMILIES = (
    (r"\bP100\b.*SXM", "6.0"),
    (r"\bV100\b", "7.0"),
    (r"\bA(?:100|800|30)\b", "8.0"),
    (r"\b(?:H100|H200|H800|H20|GH200)\b", "9.0"),
    (r"\bG?B200\b", "10.0"),
    (r"\bG?B300\b", "10.3"),
)
BOARDS = (
    (r"\bGTX\s*(?:9[678]0|10[678]0)|\bTITAN|\b[PV]100\b|\bRTX\s*20[678]0", (3, 16)),
    (r"\bRTX\s*(?:30[6-9]0|40[789]0)|\bA(?:100|800|40|30|10)\b|\bA[456]000\b|\bL(?:4|20|40S?)\b", (4, 16)),
    (r"\bRTX\s*50[789]0|\bRTX PRO [56]000|\bH(?:20|100|200|800)\b", (5, 16)),
)
# BAR1 while Resizable BAR or Above 4G Decoding is off, and the compute capability from which a card of each class needs
# a larger one for its peers: aikitoria/open-gpu-kernel-modules#22 is an RTX 3090 with 256 MiB whose peers get wrong
# data. Workstation cards of Ampere come with it and copy through mailboxes (general knowledge).
SMALL_BAR1_MIB = 256
LARGE_BAR1_FROM = {"datacenter": (8, 0), "geforce": (8, 0), "workstation": (8, 9)}


@lru_cache(maxsize=256)
def known_model(name: str | None) -> GpuModel | None:
    return find_gpu(name) if name else None


@lru_cache(maxsize=256)
def nvlink_of(name: str | None) -> NvLinkRate | None:
    """Generation and rate of a GPU's NVLinks; by family where the table lacks the very board (A100-SXM-64GB)."""
    if not name:
        return None
    key = next((key for pattern, key in NVLINK_FAMILIES if re.search(pattern, name, re.IGNORECASE)), None)
    return gpu_nvlink(name) or gpu_nvlink(key)


@lru_cache(maxsize=256)
def board_of(name: str | None) -> tuple[int, int] | None:
    """PCIe generation and width that a board is made for; by family where the table lacks it."""
    model = known_model(name)
    if model and model.pcie:
        return model.pcie.generation, model.pcie.width
    return next((link for pattern, link in BOARDS if name and re.search(pattern, name, re.IGNORECASE)), None)


def is_geforce_without_p2p(name: str | None) -> bool:
    """Whether the stock driver forbids peer-to-peer over PCIe on this card."""
    return bool(name) and GEFORCE.search(str(name)) is not None and not re.search(r"\bA\d{4}|Quadro", str(name))


def needs_large_bar1(model: GpuModel | None, capability: str | None = None) -> bool | None:
    """Whether peers of this GPU need more than the small window; None if its capability is not known.

    capability: that the driver reports.
    """
    capability = capability or (model.compute_capability if model else None)
    if capability is None:
        return None
    major, _, minor = capability.partition(".")
    return (int(major), int(minor or 0)) >= LARGE_BAR1_FROM[model.cls if model else "geforce"]
