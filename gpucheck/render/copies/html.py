"""Copies between GPUs for a page, as copies.html.j2 shows them, and the texts of its cells."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpucheck.render.copies.heat import SLOW_MARK, SLOW_MEANING, TITLES, below, is_sparse, low_ends, steps
from gpucheck.render.copies.measured import Copies


class Heat(NamedTuple):
    """A matrix of measurements. rows: label of the source, then (text, step) of each cell. slow: what the mark is."""

    name: str
    title: str
    rows: list[tuple[str, list[tuple[str, int | None]]]]
    slow: str


def heats(found: Copies | None) -> list[Heat]:
    """Return the matrices that were measured; sparse ones are left out."""
    return list(_heats(found)) if found else []


def _heats(found: Copies) -> Iterator[Heat]:
    for name, (title, _) in TITLES.items():
        matrix = found.matrices.get(name)
        if matrix is None or is_sparse(matrix):
            continue
        shades, slow = steps(name, matrix, found.pairs), below(matrix, low_ends(name, found.pairs))
        rows = [
            (str(device.index), [(_number(cell, (i, j) in slow), shade[j]) for j, cell in enumerate(row)])
            for i, (device, row, shade) in enumerate(zip(found.devices, matrix, shades, strict=True))
        ]
        yield Heat(name, title, rows, f"{SLOW_MARK} {SLOW_MEANING}" if slow else "")


def _number(cell: float | None, slow: bool) -> str:
    mark = SLOW_MARK if slow else ""
    return "" if cell is None else f"{mark}{cell:.0f}" if cell >= 100 else f"{mark}{cell:.1f}"


def data(found: Copies | None) -> dict[str, Any]:
    """Return the text that the page shows when the pointer is on a cell."""
    if found is None:
        return {"devices": [], "paths": [], "pairs": {}}
    paths: dict[tuple[Any, ...], int] = {}
    pairs = {
        f"{p.src},{p.dst}": (
            paths.setdefault((p.cls, p.expected_gb_s, p.low_gb_s, p.basis), len(paths)),
            p.measured.gb_s if p.measured else None,
        )
        for p in found.pairs
    }
    devices = [(device.index, device.name, device.bus_id) for device in found.devices]
    return {"devices": devices, "paths": list(paths), "pairs": pairs}
