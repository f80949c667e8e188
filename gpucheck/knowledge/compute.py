"""What a GPU can compute in one clock, and when a rate is too low (compute.yml)."""

from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table
from gpucheck.knowledge.gpus import find_gpu, gpus_of_family, plain

MatrixType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
BoardClass = Literal["datacenter", "geforce", "workstation"]


class Operations(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """Dense operations per multiprocessor and clock, by type; None: the type has no ceiling.

    names: patterns of the boards that the row is for. cls: None is any class.
    """

    capability: str
    names: tuple[str, ...] = ()
    cls: BoardClass | None = None
    fp32: int | None = None
    tf32: int | None = None
    bf16: int | None = None
    fp16: int | None = None
    fp8: int | None = None
    int8: int | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates as the manufacturer states them, in 10**12 operations per second. gpu: as NVML names it."""

    gpu: str
    capability: str
    multiprocessors: int
    mhz: int
    tflops: dict[MatrixType, float]
    source: str


class LeastPart(msgspec.Struct, frozen=True, kw_only=True):
    """The least part of the ceiling."""

    matrix: dict[MatrixType, float]
    memory: float


class PeerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Losses against GPUs of the same model, as fractions. clock_loss: of the clock under load."""

    warn_loss: float
    fail_loss: float
    clock_loss: float


class ComputeTable(Table, frozen=True, kw_only=True):
    """compute.yml."""

    schema_: Literal["gpucheck.knowledge.compute/1"]
    status: str
    operations_per_clock: tuple[Operations, ...]
    published: tuple[Published, ...]
    least_part: LeastPart
    peers: PeerLimits


compute_table = partial(table, "compute.yml", ComputeTable)


def operations_per_clock(capability: str | None, name: str) -> dict[str, int]:
    """Return dense operations per multiprocessor and clock, by type; empty for an unknown capability or board.

    name: of the GPU, which decides between boards of one architecture.
    """
    row = operations_row(capability, name)
    found = {type_: getattr(row, type_, None) for type_ in MatrixType.__args__}  # type: ignore[attr-defined]
    return {type_: count for type_, count in found.items() if count is not None}


def operations_row(capability: str | None, name: str) -> Operations | None:
    """Return the row of a board: the one that names it, else that of its class, else that of any class.

    Boards of one architecture differ by 2 to 4 times, so a board that is not known has none.
    """
    rows = [row for row in compute_table().operations_per_clock if row.capability == capability]
    product, cls = name.removeprefix("NVIDIA "), board_class(name)
    named = [row for row in rows if any(fnmatchcase(product, pattern) for pattern in row.names)]
    of_class = [row for row in rows if not row.names and row.cls in (cls, None)] if cls else []
    return next(iter((*named, *sorted(of_class, key=lambda row: row.cls is None))), None)


def board_class(name: str) -> BoardClass | None:
    """Return the class of a board by its NVML name; None for a name that is not known."""
    model = find_gpu(name)
    return model.cls if model else "geforce" if "GeForce" in name else None


def ceiling_tflops(operations: int, multiprocessors: int, mhz: float) -> float:
    """Return the ceiling in 10**12 operations per second at a clock."""
    return operations * multiprocessors * mhz / 1e6


def memory_ceiling_gb_s(bus_bits: int, mhz: float) -> float:
    """Return the ceiling of a memory in GB/s: bus width times data rate, two transfers per clock as CUDA reports it."""
    return bus_bits / 8 * 2 * mhz / 1e3


Rate = Annotated[float, msgspec.Meta(gt=0)]


class Normal(TableRow, frozen=True, kw_only=True):
    """One quantity of one GPU model and path. gb_s: lowest and highest published, 10**9 bytes per second.

    Copies are of one direction unless they run both ways (then the sum); all_reduce is the bus bandwidth of nccl-tests.
    """

    gpu: str
    path: str
    what: Literal["copy", "copy both ways", "copy without P2P", "copy both ways without P2P", "all_reduce"]
    gb_s: tuple[Rate, Rate]
    sources: tuple[str, ...]
    gpus: int = 2


class _Normals(Table, frozen=True, kw_only=True):
    rows: tuple[Normal, ...]


def normals(model: str | None = None) -> tuple[Normal, ...]:
    """Return all rows, or those of a model by any of its names; a family (``H100``) has those of its boards."""
    rows = table("normal.yml", _Normals).rows
    if model is None:
        return rows

    def boards(name: str) -> set[str]:
        board = find_gpu(name)
        return {board.name} if board else {gpu.name for gpu in gpus_of_family(name)}

    wanted = boards(model)
    return tuple(row for row in rows if plain(model) == plain(row.gpu) or wanted & boards(row.gpu))
