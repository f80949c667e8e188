"""Copies between GPUs for a page, as copies.html.j2 shows them, and the texts of its cells."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from gpucheck.model import Finding, Verdict
from gpucheck.render.copies.cells import BAD, LOW_TEXT, MEANING, TITLES, is_low, is_sparse, low_ends, used, verdicts
from gpucheck.render.copies.measured import Copies, peer_words
from gpucheck.render.findings.html import SHAPE

LOWER = "\u2193"


class Heat(NamedTuple):
    """A matrix of measurements. rows: label of the source, then (text, class) of each cell. legend: class and text."""

    name: str
    title: str
    rows: list[tuple[str, list[tuple[str, str]]]]
    legend: list[tuple[str, str]]


def heats(found: Copies | None, findings: Iterable[Finding]) -> list[Heat]:
    """Return the matrices that were measured; sparse ones are left out."""
    return list(_heats(found, tuple(findings))) if found else []


def _heats(found: Copies, findings: tuple[Finding, ...]) -> Iterator[Heat]:
    for name, title in TITLES.items():
        matrix = found.matrices.get(name)
        if matrix is None or is_sparse(matrix):
            continue
        colors = verdicts(name, matrix, found.pairs, found.devices, findings)
        low = low_ends(name, found.pairs)
        rows = [
            (str(device.index), [_cell(row[j], color, is_low((i, j), row[j], low)) for j, color in enumerate(shown)])
            for i, (device, row, shown) in enumerate(zip(found.devices, matrix, colors, strict=True))
        ]
        legend = [(verdict.value, f"{SHAPE[verdict]} {MEANING[verdict]}") for verdict in used(colors)]
        if any(kind.endswith("low") for _, cells in rows for _, kind in cells):
            legend.append(("low", f"{LOWER} {LOW_TEXT}"))
        if any(color is Verdict.PASS for row in colors for color in row):
            legend.append(("pass", "as expected"))
        if any(color is Verdict.SKIP for row in colors for color in row):
            legend.append(("skip", "no expectation"))
        yield Heat(name, title, rows, legend)


def _cell(cell: float | None, verdict: Verdict | None, low: bool) -> tuple[str, str]:
    if cell is None or verdict is None:
        return "", "none"
    alone = low and verdict not in BAD
    mark = LOWER if alone else SHAPE[verdict] if verdict in BAD else ""
    kind = f"{verdict.value} low" if alone else verdict.value
    return f"{mark}{cell:.0f}" if cell >= 100 else f"{mark}{cell:.1f}", kind


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


class Access(NamedTuple):
    """Peer access. one: the words of all ordered pairs if they are equal. rows: label, and a cell for each GPU."""

    one: str
    pairs: int
    rows: list[tuple[str, list[str]]]


def access(found: Copies | None) -> Access | None:
    """Return what CUDA and NVML state about each pair; None without it."""
    if found is None or found.peer_access is None:
        return None
    words, count = peer_words(found.peer_access), len(found.devices)
    rows = [
        (str(device.index), [words.get((i, j), "\u2013") for j in range(count)])
        for i, device in enumerate(found.devices)
    ]
    return Access(next(iter(words.values())) if len(set(words.values())) == 1 else "", len(words), rows)
