"""The matrix as text: whole, or where a terminal has no room for it, with like GPUs joined."""

from collections.abc import Iterator
from functools import lru_cache

import click

from gpucheck.model import Topology, TopologyGpu
from gpucheck.render.words import ranges, table

GAP = "?"
MISSING = "N/A"
COLOUR = {"NV#": "green", "PIX": "cyan", "PXB": "cyan", "PHB": "yellow", "NODE": "yellow", "SYS": "red", GAP: "magenta"}
LABEL_WIDTH = 24


def kind_of(cls: str | None) -> str:
    """The class without its count of links."""
    return GAP if cls is None else "NV#" if cls.startswith("NV") else cls


def matrix(topology: Topology, width: int | None = None) -> list[str]:
    """Header, one line a GPU and network card: classes, then the affinity columns that hold anything.

    width: columns of the terminal; None for no limit, and what `gpucheck topo --import` reads. A matrix that does
    not fit is shown with GPUs that differ in nothing as one row, and in bands of columns where that is too wide too.
    """
    if not topology.gpus:
        return []
    header, rows = _cells(topology)
    whole = _table(header, rows, len(topology.gpus) + len(topology.nics))
    if width is None or max(len(click.unstyle(line)) for line in whole) <= width:
        return whole
    return _folded(topology, width)


def _folded(topology: Topology, width: int) -> list[str]:
    """Three tables, each with its own like GPUs joined: class to GPUs, class to network cards, affinity."""
    count, (header, rows) = len(topology.gpus), _cells(topology)
    lines = ["GPUs that differ in nothing share a row.", "A cell at its own column is the class between them.", ""]
    groups = like_gpus(topology)
    names = [_shortened(ranges([topology.gpus[i].index for i in group])) for group in groups]
    cells = [
        [name, *(between(topology, group, other) for other in groups)]
        for name, group in zip(names, groups, strict=True)
    ]
    lines += _table(["", *names], cells, len(groups), width)
    for start, end in ((count + 1, count + 1 + len(topology.nics)), (count + 1 + len(topology.nics), len(header))):
        if start == end:
            continue
        equal: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(rows[:count]):
            equal.setdefault(tuple(row[start:end]), []).append(topology.gpus[i].index)
        cells = [[_shortened(ranges(members)), *values] for values, members in equal.items()]
        cells += [[row[0], *row[start:end]] for row in rows[count:] if any(row[start:end])]
        lines += ["", *_table(["", *header[start:end]], cells, end - start if end < len(header) else 0, width)]
    return lines


def between(topology: Topology, group: list[int], other: list[int]) -> str:
    """Return the class between two groups of like GPUs, or inside of one."""
    if group is not other:
        return topology.matrix[group[0]][other[0]] or GAP
    return topology.matrix[group[0]][group[1]] or GAP if len(group) > 1 else "X"


def like_gpus(topology: Topology) -> list[list[int]]:
    """Return positions of GPUs that have the same class to every other GPU."""
    groups: list[list[int]] = []
    for i, row in enumerate(topology.matrix):
        for group in groups:
            first = group[0]
            other = topology.matrix[first]
            same = all(a == b for k, (a, b) in enumerate(zip(row, other, strict=True)) if k not in (i, first))
            inner = len(group) == 1 or row[first] == topology.matrix[group[1]][first]
            if same and inner:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _cells(topology: Topology) -> tuple[list[str], list[list[str]]]:
    affinities = _affinities(topology.gpus)
    nics = [nic.label for nic in topology.nics]
    header = ["", *(f"GPU{gpu.index}" for gpu in topology.gpus), *nics, *affinities]
    rows = [
        [
            f"GPU{gpu.index}",
            *(cell or GAP for cell in topology.matrix[i]),
            *(nic.classes[i] or GAP for nic in topology.nics),
            *(values[i] for values in affinities.values()),
        ]
        for i, gpu in enumerate(topology.gpus)
    ]
    blank = [""] * len(affinities)
    rows += [
        [label, *(cls or GAP for cls in nic.classes), *(cls or GAP for cls in nic.peers), *blank]
        for label, nic in zip(nics, topology.nics, strict=True)
        if nic.peers
    ]
    return header, rows


def _affinities(gpus: tuple[TopologyGpu, ...]) -> dict[str, list[str]]:
    columns = {
        "CPU Affinity": [gpu.cpu_affinity or MISSING for gpu in gpus],
        "NUMA Affinity": [gpu.numa_affinity or MISSING for gpu in gpus],
        "GPU NUMA ID": [gpu.gpu_numa_id or GAP for gpu in gpus],
    }
    # The columns are positional for a reader, so one that holds nothing may only be left out from the right.
    while columns and all(value in (MISSING, GAP) for value in list(columns.values())[-1]):
        if "GPU NUMA ID" in columns and any(gpu.gpu_numa_id for gpu in gpus):
            break
        columns.popitem()
    return columns


def _shortened(text: str) -> str:
    label = f"GPU{text}"
    return label if len(label) <= LABEL_WIDTH else f"{label[: LABEL_WIDTH - 3]}..."


def _table(header: list[str], rows: list[list[str]], classes: int, width: int | None = None) -> list[str]:
    """classes: how many columns after the first hold path classes, which have colors."""
    return table(header, ([row[0], *map(_colored, row[1 : classes + 1]), *row[classes + 1 :]] for row in rows), width)


@lru_cache(256)
def _colored(cell: str) -> str:
    """An X has a blank before it, which stays outside of the color."""
    colored = click.style(cell, fg=COLOUR.get(kind_of(cell)), dim=cell == "X" or None) if cell else ""
    return f" {colored}" if cell == "X" else colored


def used_kinds(topology: Topology) -> Iterator[str]:
    """Every kind of class that the matrix shows."""
    for row in topology.matrix:
        yield from map(kind_of, row)
    for nic in topology.nics:
        yield from map(kind_of, (*nic.classes, *nic.peers))
