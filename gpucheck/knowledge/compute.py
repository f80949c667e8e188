"""What a GPU can compute in one clock, and when a rate is too low (compute.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table
from gpucheck.knowledge.names import find_gpu

MatrixType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
BoardClass = Literal["datacenter", "geforce", "workstation"]


class Operations(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """Dense operations per multiprocessor and clock, by type; None: the type has no ceiling. cls: None is any."""

    capability: str
    cls: BoardClass | None = None
    fp32: int | None = None
    tf32: int | None = None
    bf16: int | None = None
    fp16: int | None = None
    fp8: int | None = None
    int8: int | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True, rename={"cls": "class"}):
    """Peak rates as the manufacturer states them, in 10**12 operations per second."""

    gpu: str
    capability: str
    multiprocessors: int
    mhz: int
    tflops: dict[MatrixType, float]
    cls: BoardClass | None = None


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


def compute_table() -> ComputeTable:
    """compute.yml. Raises KnowledgeError if the file is damaged."""
    return table("compute.yml", ComputeTable)


def operations_per_clock(capability: str | None, name: str) -> dict[str, int]:
    """Return dense operations per multiprocessor and clock, by type; empty for an unknown compute capability.

    name: of the GPU, which decides between boards of one architecture.
    """
    model = find_gpu(name)
    known = compute_table().operations_per_clock
    rows = [row for row in known if row.capability == capability and row.cls in (None, model.cls if model else None)]
    if not rows:
        return {}
    row = next((row for row in rows if row.cls is not None), rows[0])
    return {type_: count for type_ in MatrixType.__args__ if (count := getattr(row, type_)) is not None}  # type: ignore[attr-defined]


def ceiling_tflops(operations: int, multiprocessors: int, mhz: float) -> float:
    """Return the ceiling in 10**12 operations per second at a clock."""
    return operations * multiprocessors * mhz / 1e6


def memory_ceiling_gb_s(bus_bits: int, mhz: float) -> float:
    """Return the ceiling of a memory in GB/s: bus width times data rate, two transfers per clock as CUDA reports it."""
    return bus_bits / 8 * 2 * mhz / 1e3
