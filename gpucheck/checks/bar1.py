"""BAR1: is the window through which peers see a GPU's memory as large as the memory?

Source: nvmlDeviceGetBAR1MemoryInfo. 256 MiB on a card of Ampere or newer means that Resizable BAR or Above 4G Decoding
is off; a Turing card such as the T4 has no more (captures of cloud machines). It matters where GPUs copy to each other
over PCIe, and to nobody else.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import each_gpu, not_reported
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About
from gpucheck.topology import joint

NAME = "bar1"
SMALL = 256 << 20
# Compute capability from which a card of each class needs a large window for its peers. GeForce and workstation cards
# of Ampere come with 256 MiB and copy through mailboxes (general knowledge).
LARGE_FROM = {"datacenter": (8, 0), "geforce": (8, 9), "workstation": (8, 9)}
FIX = (
    "enable Above 4G Decoding and Resizable BAR in the BIOS, update the card's VBIOS, then: gpucheck verify --only bar1"
)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, and the kind of virtual machine where there is one."""

    nvml: NvmlReading | NvmlFailure
    virtual: str | None


def probe(host: Host) -> Values:
    """Ask NVML."""
    return Values(nvml=host.nvml(), virtual=host.system().virtual)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding a GPU."""
    nothing = "no GPU of this host tells the size of its BAR1"
    yield from each_gpu(NAME, values.nvml, lambda gpu: _judge(values, gpu), nothing=nothing)


def _judge(values: Values, gpu: Gpu) -> Finding | None:
    bar1, memory = gpu.bar1_bytes, gpu.memory_bytes
    if bar1 is None or memory is None:
        return not_reported(NAME, values.nvml, gpu, "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetMemoryInfo")
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", unit="MiB")
    seen, wanted = bar1 >> 20, memory >> 20
    if bar1 > SMALL:
        return about.passes(seen)
    model = gpu_by_pci_id(gpu.device_id)
    if _capability(gpu) < LARGE_FROM[model.cls if model is not None else "geforce"]:
        return about.skips("cards of this class and generation come with a small window", seen)
    if values.virtual is not None:
        return about.skips(f"inside a {values.virtual} machine the window is the provider's choice", seen)
    if model is not None and model.cls == "geforce" and not _has_pcie_peer(values.nvml, gpu):
        return about.skips("small, and no other GPU reaches this one over PCIe, so it costs nothing", seen)
    why = "peers reach the GPU's memory through a small window that must be moved: peer copies are slow or refused"
    return about.warns(seen, wanted, why, FIX, "rebar-off")


def _has_pcie_peer(nvml: NvmlReading | NvmlFailure, gpu: Gpu) -> bool:
    """Whether NVML grants this GPU a peer to which no NVLink goes."""
    if not isinstance(nvml, NvmlReading) or "read" not in nvml.p2p:
        return False
    granted = nvml.p2p["read"][gpu.index]
    return any(granted[peer.index] == "OK" and not joint(gpu, peer).links for peer in nvml.gpus if peer is not gpu)


def _capability(gpu: Gpu) -> tuple[int, int]:
    major, _, minor = (gpu.compute_capability or "0.0").partition(".")
    return int(major), int(minor or 0)


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
