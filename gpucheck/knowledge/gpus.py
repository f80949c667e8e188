"""Every GPU that is known: the rows of gpus.yml, and the boards of boards.yml, which share the facts of their chip."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import msgspec

from gpucheck.knowledge._load import Table, table

Flavour = Literal["open", "proprietary", "either"]
# The oldest branch that the open kernel modules cover; boards in its first list are older than it.
OPEN_MODULES_FROM = 515


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


class GpuC2c(msgspec.Struct, frozen=True, kw_only=True):
    """NVLink-C2C to the Grace CPU. gb_s: of one GPU in one direction, at the line rate.

    reached: what the slower direction reaches by copy engine: median, as a part of gb_s, and spread (as in links.yml).
    """

    gb_s: float
    reached: tuple[float, float]
    source: str


class GpuModel(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One GPU product. Absent ends (last_driver_branch, max_cuda) mean that no end is known.

    grace: on a module with a Grace CPU, so the host is aarch64 and the kernel modules are open.
    general_knowledge: the facts of its chip are not confirmed by a source.
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
    c2c: GpuC2c | None = None
    fabric: Literal["nvswitch", "nvlink5", "imex"] | None = None
    grace: bool = False
    forward_compatibility: bool | None = None
    note: str | None = None
    general_knowledge: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """One product of a chip family. first: the oldest release of the open modules that lists it. width: PCIe lanes."""

    name: str
    pci_ids: tuple[str, ...]
    cls: Literal["datacenter", "geforce", "workstation"]
    aliases: tuple[str, ...] = ()
    first: str | None = None
    width: int | None = None
    nvlink: GpuNvLink | None = None
    fabric: Literal["nvswitch"] | None = None


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What all boards of a chip share."""

    chip: str
    architecture: str
    compute_capability: str
    kernel_module: Flavour
    min_cuda_native: str
    boards: tuple[Board, ...]
    last_driver_branch: str | None = None
    max_cuda: str | None = None
    pcie: GpuPcie | None = None
    grace: bool = False


class BoardTable(Table, frozen=True, kw_only=True):
    """boards.yml."""

    schema_: Literal["gpucheck.knowledge.boards/1"]
    families: tuple[Family, ...]


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


class GpuTable(Table, frozen=True, kw_only=True):
    """gpus.yml."""

    schema_: Literal["gpucheck.knowledge.gpus/1"]
    nvswitch_from_gpus: int
    confirmed: str
    generations: _Generations
    gpus: tuple[GpuModel, ...]


def gpu_table() -> GpuTable:
    """gpus.yml. Raises KnowledgeError if the file is damaged."""
    return table("gpus.yml", GpuTable)


@cache
def gpus() -> tuple[GpuModel, ...]:
    """Every GPU that is known. Raises KnowledgeError if a file is damaged."""
    families = table("boards.yml", BoardTable).families
    return (*gpu_table().gpus, *(_model(family, board) for family in families for board in family.boards))


def _model(family: Family, board: Board) -> GpuModel:
    pcie = family.pcie
    if pcie is not None and board.width is not None:
        pcie = msgspec.structs.replace(pcie, width=board.width)
    stated = {**msgspec.structs.asdict(family), **msgspec.structs.asdict(board), "pcie": pcie}
    shared: dict[str, Any] = {name: stated[name] for name in GpuModel.__struct_fields__ if name in stated}
    return GpuModel(**shared, first_driver=_first_driver(family, board), general_knowledge=True)


def _first_driver(family: Family, board: Board) -> FirstDriver:
    if board.first is None:
        branch = min("470", family.last_driver_branch or "470", key=int)
        evidence = f"{family.architecture} is older than branch {branch}"
        return FirstDriver(branch=branch, is_="at-most", evidence=evidence)
    branch = board.first.partition(".")[0]
    if int(branch) > OPEN_MODULES_FROM:
        return FirstDriver(branch=branch, is_="proven", evidence=f"open-readme:{board.first}")
    evidence = f"open-readme:{board.first}; 470 from general knowledge"
    return FirstDriver(branch="470", is_="assumed", evidence=evidence)


def generation_of(device_id: str) -> Generation | None:
    """The generation a device id falls in by its range alone, for an id that no row names; None for what is no id."""
    digits = device_id.lower().removeprefix("10de:").removeprefix("0x")
    value = int(digits, 16) if re.fullmatch("[0-9a-f]{1,8}", digits) else -1
    for generation in gpu_table().generations.ranges:
        if int(generation.first, 16) <= value <= int(generation.last, 16):
            return generation
    return None


def code_runs(capability: str, archs: Iterable[int]) -> bool:
    """Whether a GPU (``"8.9"``) runs one of these machine codes (86 means sm_86).

    Code for X.Y runs on X.Z with Z >= Y, and never on another X. Source: NVIDIA's CUDA programming guide.
    """
    major, _, minor = capability.partition(".")
    family, newest = int(major), int(minor)
    return any(arch // 10 == family and arch % 10 <= newest for arch in archs)
