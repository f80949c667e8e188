"""What copies and collectives reach on machines whose owners published measurements."""

from typing import Annotated, Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table
from gpucheck.knowledge.names import find_gpu, gpus_of_family, plain

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
    board = find_gpu(model)
    wanted = {gpu.name for gpu in ((board,) if board else gpus_of_family(model))}
    return tuple(row for row in rows if plain(model) == plain(row.gpu) or wanted & _boards(row.gpu))


def _boards(name: str) -> set[str]:
    """Names of the boards that a row is about."""
    board = find_gpu(name)
    return {board.name} if board else {gpu.name for gpu in gpus_of_family(name)}
