"""The GPU table, and finding a GPU by what people call it: marketing name, NVML name, or PCI device id."""

import difflib
import re
from collections.abc import Iterable
from functools import cache
from typing import Literal

import msgspec

from gpucheck.knowledge._load import table

Flavour = Literal["open", "proprietary", "either"]
# The end of an NVML name that tells no products apart: ``-16GB``, ``-32GB-LS``, `` 80GB HBM2e``.
MEMORY_AND_REVISION = re.compile(r"[-_ ]\d+ ?GB([-_ ]HBM\w+)?([-_ ](N|LS|LSB|TS))?\s*$", re.IGNORECASE)


class FirstDriver(msgspec.Struct, frozen=True, kw_only=True, rename={"is_": "is"}):
    """The oldest driver branch with evidence of support. is_: how good the evidence is."""

    branch: str
    is_: Literal["proven", "at-most", "assumed"]
    evidence: str


class GpuNvLink(msgspec.Struct, frozen=True, kw_only=True):
    """NVLink of one GPU. gb_s_per_link: payload in one direction. bridge: only to a card joined by a bridge."""

    generation: int
    links: int
    gb_s_per_link: float
    basis: str
    bridge: bool = False


class GpuPcie(msgspec.Struct, frozen=True, kw_only=True):
    """The PCIe link the board is made for."""

    generation: int
    width: int
    basis: str


class GpuModel(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One GPU product. Absent ends (last_driver_branch, max_cuda) mean that no end is known.

    grace: sits beside a Grace CPU, so the host is aarch64 and the kernel modules are open.
    """

    name: str
    aliases: tuple[str, ...]
    pci_ids: tuple[str, ...]
    architecture: str
    compute_capability: str
    cls: Literal["datacenter", "geforce", "workstation"]
    kernel_module: Flavour
    first_driver: FirstDriver
    min_cuda_native: str
    last_driver_branch: str | None = None
    max_cuda: str | None = None
    nvlink: GpuNvLink | None = None
    pcie: GpuPcie | None = None
    fabric: Literal["nvswitch", "nvlink5", "imex"] | None = None
    grace: bool = False
    forward_compatibility: bool | None = None
    note: str | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A range of PCI device ids, four lower-case hex digits, both ends included."""

    first: str
    last: str
    name: str
    kernel_module: Flavour
    last_driver_branch: str | None = None


class _Generations(msgspec.Struct, frozen=True, kw_only=True):
    source: tuple[str, ...]
    status: str
    ranges: tuple[Generation, ...]


class GpuTable(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """gpus.yml."""

    schema_: Literal["gpucheck.knowledge.gpus/1"]
    as_of: str
    source: tuple[str, ...]
    notes: tuple[str, ...]
    nvswitch_from_gpus: int
    confirmed: str
    unconfirmed: tuple[str, ...]
    generations: _Generations
    gpus: tuple[GpuModel, ...]


def gpu_table() -> GpuTable:
    """The whole table. Raises KnowledgeError if the file is damaged."""
    return table("gpus.yml", GpuTable)


def plain(name: str) -> str:
    """A name as people type it, reduced to what tells products apart: ``NVIDIA GeForce RTX 4090`` -> ``rtx4090``."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return "".join(word for word in words if word not in {"nvidia", "tesla", "geforce", "quadro", "gpu"})


@cache
def _by_name() -> dict[str, GpuModel]:
    return {plain(name): gpu for gpu in gpu_table().gpus for name in (*gpu.aliases, gpu.name)}


@cache
def _by_pci_id() -> dict[str, GpuModel]:
    return {pci_id: gpu for gpu in gpu_table().gpus for pci_id in gpu.pci_ids}


def gpu_by_pci_id(device_id: str) -> GpuModel | None:
    """The GPU with this device id (``15f8``, ``0x15F8`` or ``10de:15f8``), or None."""
    return _by_pci_id().get(device_id.lower().removeprefix("10de:").removeprefix("0x"))


def find_gpu(text: str) -> GpuModel | None:
    """The GPU that a marketing name, NVML name or PCI device id means, or None.

    NVML names carry memory sizes and revisions that the table may not (``Tesla V100-SXM2-16GB-N``): these are ignored,
    anything else is not: an RTX 4090 Ti is no RTX 4090.
    """
    known = _by_name()
    key = plain(text)
    if key in known:
        return known[key]
    by_id = gpu_by_pci_id(text.strip())
    if by_id is not None:
        return by_id
    return known.get(plain(MEMORY_AND_REVISION.sub("", text)))


def similar_gpus(text: str, count: int = 3) -> tuple[str, ...]:
    """Names near to one that was not found, best first; empty when nothing is near."""
    known = _by_name()
    key = plain(text)
    near = difflib.get_close_matches(key, known, n=count * 2, cutoff=0.5)
    inside = [name for name in known if len(key) > 2 and (key in name or name in key)]
    return tuple(dict.fromkeys(known[name].name for name in (*inside, *near)))[:count]


def generation_of(device_id: str) -> Generation | None:
    """The generation a device id falls in by its range alone, for an id that no row names."""
    value = int(device_id.lower().removeprefix("10de:").removeprefix("0x"), 16)
    for generation in gpu_table().generations.ranges:
        if int(generation.first, 16) <= value <= int(generation.last, 16):
            return generation
    return None


def code_runs(capability: str, archs: Iterable[int]) -> bool:
    """Whether a GPU (``"8.9"``) runs one of these machine codes (86 means sm_86).

    Code for X.Y runs on X.Z with Z >= Y, and never on another X. Source: NVIDIA's CUDA programming guide.
    """
    major, _, minor = capability.partition(".")
    return any(arch // 10 == int(major) and arch % 10 <= int(minor) for arch in archs)
