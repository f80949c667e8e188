"""Every GPU that is known: the rows of gpus.yml, and the boards of boards.yml, which share the facts of their chip."""

import re
from collections.abc import Iterable
from functools import cache, partial
from typing import Any, Literal

import msgspec

from gpucheck.knowledge._load import Table, table

Flavour = Literal["open", "proprietary", "either"]
# The oldest branch that the open kernel modules cover; boards in its first list are older than it.
OPEN_MODULES_FROM = 515


class FirstDriver(msgspec.Struct, frozen=True, kw_only=True, rename={"is_": "is"}):
    """The oldest driver branch with evidence of support. is_: how good the evidence is.

    release: the oldest one of that branch with the GPU, None = no older one was read.
    """

    branch: str
    release: str | None = None
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


gpu_table = partial(table, "gpus.yml", GpuTable)


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
        return FirstDriver(branch=branch, release=board.first, is_="proven", evidence=f"open-readme:{board.first}")
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


# The end of an NVML name that does not distinguish products: ``-16GB``, ``-32GB-LS``, `` 80GB HBM2e``.
MEMORY_AND_REVISION = re.compile(r"[-_ ]\d+ ?GB([-_ ]HBM\w+)?([-_ ](N|LS|LSB|TS))?\s*$", re.IGNORECASE)
MAKERS_WORDS = {"nvidia", "tesla", "geforce", "quadro", "gpu"}
GEFORCE_NUMBER = re.compile(r"[rg]tx\d")


def plain(name: str) -> str:
    """Return a typed name, reduced to what distinguishes products: ``NVIDIA GeForce RTX 4090`` -> ``rtx4090``."""
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return [word for word in words if word not in MAKERS_WORDS]


@cache
def _by_name() -> dict[str, GpuModel]:
    """By plain name, and GeForce boards also by their number alone: ``3080ti``."""
    numbers = {
        plain(gpu.name)[3:]: gpu for gpu in gpus() if gpu.cls == "geforce" and GEFORCE_NUMBER.match(plain(gpu.name))
    }
    return numbers | {plain(name): gpu for gpu in gpus() for name in (*gpu.aliases, gpu.name)}


@cache
def _by_pci_id() -> dict[str, GpuModel]:
    return {pci_id: gpu for gpu in gpus() for pci_id in gpu.pci_ids}


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


def gpus_of_family(text: str) -> tuple[GpuModel, ...]:
    """Every board that a name without the particulars fits: ``P100``, ``A100 SXM``, ``H100 80GB``; () for a full name.

    Each word of the text must be a word of the board's name or of one of its aliases; ``SXM`` means every SXM form.
    """
    wanted = _words(text)
    if not wanted or find_gpu(text) is not None:
        return ()

    def fits(words: list[str]) -> bool:
        forms = {re.sub(r"^sxm\d$", "sxm", word) for word in words}
        return words[0] == wanted[0] and all(word in words or word in forms for word in wanted)

    return tuple(gpu for gpu in gpus() if any(fits(_words(name)) for name in (gpu.name, *gpu.aliases)))


def similar_gpus(text: str, count: int = 3) -> tuple[str, ...]:
    """Names near to one that was not found, best first; empty when nothing is near."""
    known = _by_name()
    key = plain(text)
    import difflib

    near = difflib.get_close_matches(key, known, n=count * 2, cutoff=0.5)
    longer = [name for name in known if len(key) > 2 and key in name]
    # ``H10O`` is nearer to the family H100, which is no name of a board, than to the board M10.
    families = dict.fromkeys(_words(gpu.name)[0] for gpu in gpus())
    family = [gpu for word in difflib.get_close_matches(key, families, n=1, cutoff=0.7) for gpu in gpus_of_family(word)]
    found = (*(known[name] for name in longer), *family, *(known[name] for name in near))
    return tuple(dict.fromkeys(gpu.name for gpu in found))[:count]
