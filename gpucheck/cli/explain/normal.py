"""Rates that are usual, by GPU and path, for ``gpucheck explain normal``."""

from collections.abc import Iterator

from gpucheck.cli._shared.common import Problem
from gpucheck.knowledge.compute import Normal, normals
from gpucheck.knowledge.gpus import find_gpu, gpus_of_family, similar_gpus

HEAD = """What owners of machines published, GB/s. A copy is one direction, both ways is the sum; all_reduce is the bus
bandwidth of nccl-tests, large messages. One machine is an example, not a limit. What a healthy pair of your own
machine reaches, from its links: gpucheck topo, gpucheck verify. No source states usual training steps per second.
"""


def explained(model: str) -> Iterator[str]:
    """The rows of a model, with their sources; all rows without a model. Raises Problem."""
    rows = normals(model or None)
    if not rows:
        known = sorted({row.gpu for row in normals()})
        if find_gpu(model) or gpus_of_family(model):
            raise Problem(f"normal:{model}: no public measurement. There are some of: {', '.join(known)}.")
        hint = " or ".join(similar_gpus(model, 2))
        raise Problem(
            f"normal:{model}: unknown GPU model. {f'Did you mean {hint}?' if hint else 'See explain normal.'}"
        )
    yield HEAD
    yield from _table(rows)
    yield ""
    if model:
        yield "sources"
        yield from (f"  {source}" for source in dict.fromkeys(s for row in rows for s in row.sources))
    else:
        yield "Sources of one model: gpucheck explain normal:H100"


def _table(rows: tuple[Normal, ...]) -> Iterator[str]:
    cells = [("GPU", "path", "what", "GPUs", "GB/s", "machines")]
    cells += [(r.gpu, r.path, r.what, str(r.gpus), _range(r), str(len(r.sources))) for r in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        left = (f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=False))
        right = (f"{cell:>{width}}" for cell, width in zip(row[3:], widths[3:], strict=True))
        yield "  ".join((*left, *right))


def _range(row: Normal) -> str:
    low, high = (f"{value:.3g}" for value in row.gb_s)
    return low if low == high else f"{low} to {high}"
